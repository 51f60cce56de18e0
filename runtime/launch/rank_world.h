#pragma once
// What every way of running ranks starts with: validated options, and the World of a rank.
#include <memory>

#include <coshard/runtime/launch/world.h>

namespace coshard {

class Roster;

// The options with defaults resolved. Error{BadInput} or Error{Unsupported} for invalid ones.
WorldOptions settled(const WorldOptions& options);

// On the rank's thread, with its context current; `options` are settled.
std::unique_ptr<World> make_world(int rank, const WorldOptions& options, Roster& roster,
                                  Executor& executor);

}  // namespace coshard
