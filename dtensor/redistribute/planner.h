#pragma once
// The planner: which steps lead from one layout to another in the least predicted time. A shortest
// path over the layouts of plan_layouts.h by the prices of pricing.h; among paths of equal time one
// with the fewest collectives. No layout on the way takes more memory than the larger of the two.
// Pure, and therefore the same on every rank.
#include <span>
#include <string>
#include <vector>

#include <coshard/dtensor/redistribute/cost.h>
#include "dtensor/redistribute/step.h"

namespace coshard {

// Layouts must be normalized; `width`: bytes per element. Mesh dimensions of one rank take no part.
// `links`: one per mesh dimension; none: time_of's. Error{BadInput}: another number of entries; a
// Partial target, except from the same Partial, from a shard to P(sum), and from R to any but
// P(product).
std::vector<PlanStep> plan_steps(const std::vector<int>& mesh_shape, const Shape& shape, int width,
                                 const Layout& from, const Layout& to,
                                 std::span<const LinkCost> links = {});

// "S(0)R -> RR -> RS(1)": the layouts a plan goes through.
std::string trace(const Layout& from, const std::vector<PlanStep>& steps);

}  // namespace coshard
