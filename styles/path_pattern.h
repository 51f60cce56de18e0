#pragma once
// Paths of modules ("layers.0.attn") against patterns ("layers.*.attn"), part by part. Pure
// functions.
#include <string>
#include <string_view>
#include <vector>

namespace coshard {

// As many parts, and each is matched by the shell pattern (*, ?, [12]) in its place. "" matches ""
// only.
bool matches(std::string_view pattern, std::string_view path);

// The `most` names with the fewest edits to what the pattern could stand for, best first.
std::vector<std::string> nearest(std::string_view pattern, std::vector<std::string> names,
                                 std::size_t most);

}  // namespace coshard
