#pragma once
// What the launcher starts for each rank: runs the rank's program, tells `coshard run` of it and
// outlives it, so that the launcher does not end the other ranks before they have said what they
// saw. Leaves when it is told to, and then with the program's exit code.
#include <string>
#include <vector>

namespace coshard::job {

// The first argument of `coshard` that makes it one; the rest are the program's words, each behind
// kGuardedWord: a launcher would take ":" for the end of its command.
constexpr const char* kGuardWord = "--guard-rank";
constexpr char kGuardedWord = '=';

// Blocks until it may leave; the exit code.
int guard(std::vector<std::string> words);

}  // namespace coshard::job
