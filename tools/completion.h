#pragma once
// The completion script of a shell, made from the options that a command line has. A pure function.
#include <CLI/CLI.hpp>
#include <string>

namespace coshard::tools {

// For bash: commands, options, the words that an option knows, else files.
std::string bash_completion(const CLI::App& app);

}  // namespace coshard::tools
