#pragma once
// Runs another program and reads its output. Blocks the calling thread.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coshard {

// Runs a program (found through PATH) without a shell, with `input` as its stdin, and returns its
// stdout; its stderr is dropped. nullopt if it could not be started or failed.
std::optional<std::string> output_of(const std::vector<std::string>& command,
                                     std::string_view input = {});

}  // namespace coshard
