#pragma once
// Runs another program and reads what it prints. Blocks the calling thread.
#include <optional>
#include <string>
#include <vector>

namespace coshard {

// Runs a program (found through PATH) without a shell and returns what it wrote to stdout; its
// stderr is dropped. Nothing when it could not be started or ended with an error.
std::optional<std::string> output_of(const std::vector<std::string>& command);

}  // namespace coshard
