#pragma once
// The planner proper: which steps lead from one layout to another in the least predicted time. A
// shortest path over layouts; pure, and therefore the same on every rank.
#include <span>
#include <string>
#include <vector>

#include <coshard/dtensor/redistribute/cost.h>
#include "dtensor/redistribute/step.h"

namespace coshard {

// Layouts must be normalised. Error{BadInput}: a different number of entries; what cannot become
// Partial: a Partial of another kind, a shard other than -> P(sum), R -> P(product).
// Consecutive steps of a kind come as one, on the mesh flattened over their dimensions. Mesh
// dimensions of one rank take part in nothing. At most one collective where there is no Partial.
// `links`: one for each mesh dimension; none: time_of's.
std::vector<PlanStep> plan_steps(const std::vector<int>& mesh_shape, const Shape& shape,
                                 const Layout& from, const Layout& to,
                                 std::span<const LinkCost> links = {});

// "S(0)R -> RR -> RS(1)": the layouts that a plan goes through.
std::string trace(const Layout& from, const std::vector<PlanStep>& steps);

}  // namespace coshard
