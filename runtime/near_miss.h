#pragma once
// Suggestions for error messages about unknown names. Pure functions.
#include <string>
#include <string_view>
#include <vector>

namespace coshard {

// Levenshtein distance
std::size_t edits(std::string_view a, std::string_view b);

// The known name with the fewest edits to `word`, or the only one that begins with it; "" when none
// is close.
std::string near_miss(std::string_view word, const std::vector<std::string>& known);

std::string joined(const std::vector<std::string>& words);  // "a, b or c"

}  // namespace coshard
