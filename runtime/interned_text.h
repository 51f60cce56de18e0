#pragma once
// Interned strings, kept for the life of the process. Thread-safe.
#include <string>
#include <string_view>

namespace coshard {

// Null-terminated.
std::string_view interned(std::string text);

}  // namespace coshard
