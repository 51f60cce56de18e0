#pragma once
// The `coshard` command.
namespace coshard::tools {

// Runs one command line; the exit code. Errors are one line on stderr: 2 for Error{BadInput}, 1 for
// any other.
int command(int argc, char** argv);

}  // namespace coshard::tools
