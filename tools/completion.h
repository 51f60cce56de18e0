#pragma once
// Generates a shell's completion script from the options of a command line. A pure function.
#include <CLI/CLI.hpp>
#include <string>

namespace coshard::tools {

// For bash: completes commands, options, the words that an option accepts, otherwise files.
std::string bash_completion(const CLI::App& app);

}  // namespace coshard::tools
