#pragma once
// That all ranks pass the same tensors to a save or a load.
#include <exception>
#include <string>
#include <string_view>

#include <coshard/dtensor/checkpoint/state.h>
#include <coshard/runtime/coro/task.h>
#include <coshard/runtime/launch/world.h>

namespace coshard {

// Error{BadInput} on all ranks of the world: what `own` says of one of them, if it is not null; or
// their `arguments` differ, or the names, types or shapes of their states, of which the first is
// named. Small
// all_gathers on World::files(). Rank's thread.
Task<void> require_same_state(World& world, std::string_view who, const State& state,
                              std::string arguments, std::exception_ptr own);

}  // namespace coshard
