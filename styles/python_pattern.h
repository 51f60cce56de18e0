#pragma once
// Regular expressions of Python's re, as PEFT's configurations have them. Pure; any thread.
#include <functional>
#include <string_view>

namespace coshard {

// What re.fullmatch(pattern, text) finds, of texts without NUL. Null: the pattern is wrong, or has
// what is not supported: lookaround, flags, numbers and names of groups, possessive quantifiers,
// counts of groups, characters beyond ASCII, more than 1000 bytes.
std::function<bool(std::string_view text)> python_fullmatch(std::string_view pattern);

}  // namespace coshard
