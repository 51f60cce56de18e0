#pragma once
// Lowers an abstract step to what one rank does: communicator, geometry, blocks to copy.
#include "dtensor/redistribute/plan.h"

namespace coshard {

// May create a communicator, together with the ranks of this rank's group.
Step lower(ShardMap& shard_map, const DeviceMesh& mesh, const PlanStep& step);

}  // namespace coshard
