#pragma once
// What a change of placement along one mesh dimension costs, in microseconds of a simple
// latency-bandwidth model. Used to choose between an operator's strategies; relations matter, not
// the unit.
#include <cstdint>

#include "dtensor/placement.h"

namespace coshard {

// Infinite when there is no such step (Shard -> Partial, one Partial to another).
double step_cost(Placement from, Placement to, std::int64_t bytes, int ranks);

}  // namespace coshard
