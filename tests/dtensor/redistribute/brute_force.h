#pragma once
// What closed forms and the planner are held against: steps priced by counting positions over all
// ranks, groups and subsets of mesh dimensions, and the shortest path over every layout.
#include <optional>
#include <span>
#include <vector>

#include <coshard/dtensor/redistribute/cost.h>
#include "dtensor/redistribute/shard_map.h"
#include "dtensor/redistribute/step.h"

namespace coshard::testing {

std::optional<PlanStep> brute_force_step(ShardMap& shard_map, const Layout& from, const Layout& to,
                                         int width, std::span<const LinkCost> links = {});
// No mesh dimension of one rank, no tensor without elements.
std::vector<PlanStep> brute_force_plan(const std::vector<int>& mesh_shape, const Shape& shape,
                                       const Layout& from, const Layout& to,
                                       std::span<const LinkCost> links = {});

}  // namespace coshard::testing
