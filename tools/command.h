#pragma once
// The `coshard` command.
namespace coshard::tools {

// Runs one command line and returns the exit code. Errors are one line on stderr, with code 2 for
// Error{BadInput} and 1 for any other.
int command(int argc, char** argv);

}  // namespace coshard::tools
