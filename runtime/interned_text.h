#pragma once
// Texts that stay for the life of the process, each once. Thread-safe.
#include <string>
#include <string_view>

namespace coshard {

// Ends with a 0.
std::string_view interned(std::string text);

}  // namespace coshard
