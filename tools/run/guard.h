#pragma once
// The process that the launcher starts for each rank: runs the rank's program, reports on it to
// `coshard run` and outlives it, so that the launcher does not end the other ranks before they have
// reported their errors. Exits when told to, with the program's exit code.
#include <string>
#include <vector>

namespace coshard::job {

// The first argument that makes `coshard` a guard; the rest are the program's words, each prefixed
// by kGuardedWord: a launcher would take a ":" for the end of its command.
constexpr const char* kGuardWord = "--guard-rank";
constexpr char kGuardedWord = '=';

// Blocks until it may exit; returns the exit code.
int guard(std::vector<std::string> words);

}  // namespace coshard::job
