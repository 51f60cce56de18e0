#pragma once
// What run(argc, argv, program) reads, for programs with options of their own: they take these out
// of argv first. In main, before any rank runs.
#include <coshard/runtime/launch/world.h>

namespace coshard {

// The most that a command line may ask for.
constexpr int kMostRanks = 1024, kMostThreads = 1024, kMostProgressThreads = 64;

// The options that run() reads, up to "--". They are taken out of argv, which keeps the others in
// their order. Error{BadInput} for what cannot be, Error{Unsupported} for what this build lacks:
// one line, for which run() gives exit code 2.
WorldOptions take_world_options(int& argc, char** argv);

}  // namespace coshard
