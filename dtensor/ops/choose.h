#pragma once
// Which layouts an operator is to run on: of all combinations of its rule's strategies, one per
// mesh dimension, the best. Pure, and therefore the same on every rank.
#include <optional>

#include <coshard/dtensor/ops/op.h>
#include "dtensor/redistribute/transition.h"

namespace coshard {

struct Choice {
  std::vector<Layout> in, out;
};

// In this order:
//   what moves nothing, for layouts are the user's plan; a Partial that it gives is left for later
//   the least time, as the planner predicts it, to redistribute the inputs and, to shards, what is
//   Partial of the outputs then
//   the fewest inputs that change, then the rule's order
// A strategy that leaves ranks without elements is none, unless an input lies so already; and where
// all inputs are replicas, they stay so.
// `now`: the inputs' layouts, of an undefined input any. `keep`: where a strategy leaves the first
// input's placement alone and gives it to the first output, only such a one.
// Mesh dimensions are decided together, by branch and bound; the planner is asked about three
// combinations at most. Nothing: no strategy leads there.
std::optional<Choice> choose_layouts(const Rule& rule, std::span<const TensorInfo> in,
                                     std::span<const Layout> now, std::span<const TensorInfo> out,
                                     const MeshCosts& mesh, bool keep);

}  // namespace coshard
