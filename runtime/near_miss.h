#pragma once
// What somebody may have meant who wrote a name that is not known. Pure functions.
#include <string>
#include <string_view>
#include <vector>

namespace coshard {

// Levenshtein distance
std::size_t edits(std::string_view a, std::string_view b);

// The known name with the fewest edits to `word`, or the only one that begins with it; "" when all
// are far from it.
std::string near_miss(std::string_view word, const std::vector<std::string>& known);

}  // namespace coshard
