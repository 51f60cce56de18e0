#pragma once
// Matches module paths ("layers.0.attn") against patterns ("layers.*.attn"), part by part. Pure
// functions.
#include <string>
#include <string_view>
#include <vector>

namespace coshard {

// Both have the same number of parts, and each part matches its shell pattern (*, ?, [12]). ""
// matches only "".
bool matches(std::string_view pattern, std::string_view path);

// `path` with "*" for each part that is a number: "layers.*.attn" of "layers.0.attn".
std::string pattern_of_numbers(std::string_view path);

// The `most` names with the least edit distance to what the pattern matches, closest first.
std::vector<std::string> nearest(std::string_view pattern, std::vector<std::string> names,
                                 std::size_t most);

}  // namespace coshard
