#pragma once
// What every way of running ranks begins with: options that make sense, and the World of a rank.
#include <memory>

#include <coshard/runtime/launch/world.h>

namespace coshard {

class Roster;

// With what is left open decided. Error{BadInput} or Error{Unsupported} for what makes no sense.
WorldOptions settled(const WorldOptions& options);

// On the rank's thread, with its context the current one; `options` are settled.
std::unique_ptr<World> make_world(int rank, const WorldOptions& options, Roster& roster,
                                  Executor& executor);

}  // namespace coshard
