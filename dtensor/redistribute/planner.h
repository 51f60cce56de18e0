#pragma once
// The planner: which steps lead from one layout to another in the least predicted time, except that
// a Partial that becomes a shard is scattered unless an all_reduce saves more than two latencies. A
// shortest path over layouts; pure, and therefore the same on every rank.
#include <span>
#include <string>
#include <vector>

#include <coshard/dtensor/redistribute/cost.h>
#include "dtensor/redistribute/step.h"

namespace coshard {

// Layouts must be normalized. Consecutive steps of one kind are merged, on the mesh flattened over
// their dimensions. Mesh dimensions of one rank take no part. At most one collective if there is no
// Partial. `links`: one per mesh dimension; none: time_of's. Error{BadInput}: another number of
// entries; a Partial target, except from the same Partial, from a shard to P(sum), and from R to
// any but P(product).
std::vector<PlanStep> plan_steps(const std::vector<int>& mesh_shape, const Shape& shape,
                                 const Layout& from, const Layout& to,
                                 std::span<const LinkCost> links = {});

// "S(0)R -> RR -> RS(1)": the layouts a plan goes through.
std::string trace(const Layout& from, const std::vector<PlanStep>& steps);

}  // namespace coshard
