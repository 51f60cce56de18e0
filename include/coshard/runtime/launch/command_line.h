#pragma once
// The options that run(argc, argv, program) reads, for programs with options of their own: these
// remove them from argv first, then call run(options, program). In main, before any rank runs.
#include <coshard/runtime/launch/world.h>

#pragma GCC visibility push(default)
namespace coshard {

// Upper limits of command-line options.
constexpr int kMostRanks = 1024, kMostThreads = 1024, kMostProgressThreads = 64;

// Reads the options of run(), up to "--", and removes them from argv; the others keep their order.
// Error{BadInput} for invalid values, Error{Unsupported} for what this build lacks: one line, for
// which run() returns exit code 2.
WorldOptions take_world_options(int& argc, char** argv);

}  // namespace coshard
#pragma GCC visibility pop
