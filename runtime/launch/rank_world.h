#pragma once
// The start of every way of running ranks: validated options, and the World of a rank.
#include <exception>
#include <memory>

#include <coshard/runtime/launch/world.h>

namespace coshard {

class RankDirectory;
struct Processes;

// The options with defaults resolved, for this process's job or the given one. Error{BadInput} or
// Error{Unsupported} for invalid ones.
WorldOptions settled(const WorldOptions& options);
WorldOptions settled(const WorldOptions& options, const Processes& processes);

// The failure of a program that has ended by `error`, which afterwards says what it has left behind
// (World::must_finish), too.
Failure end_of(const World& world, std::exception_ptr& error);

// On the rank's thread, with its context current; `options` are settled.
std::unique_ptr<World> make_world(int rank, const WorldOptions& options, RankDirectory& directory,
                                  Executor& executor);

}  // namespace coshard
