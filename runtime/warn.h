#pragma once
// Warnings of the process, on stderr. Thread-safe.
#include <string>

namespace coshard {

// "warning: text"; nothing if this process has said so before.
void warn_once(const std::string& text);

}  // namespace coshard
