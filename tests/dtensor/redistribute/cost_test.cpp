// Plans against those of PyTorch's greedy planner.
#include <coshard/runtime/cost/link.h>

#include <gtest/gtest.h>

#include <algorithm>

#include "dtensor/redistribute/planner.h"
#include "tests/dtensor/redistribute/layouts.h"

namespace coshard {
namespace {

using testing::allowed;
using testing::layouts_of;

// PyTorch's planner: inner shards in the way are undone or turned into the target at once, from the
// innermost mesh dimension to the outermost; the rest follows in the other direction.
int greedy_collectives(const Layout& from, const Layout& to) {
  int collectives = 0;
  Layout now = from;
  const auto move = [&](int m, Placement target) {
    const Placement before = std::exchange(now[m], target);
    if (before == target || before.is_replicate()) return;
    collectives += before.is_partial() || !target.is_partial();
  };
  const auto outer_agree = [&](int m, int dim) {
    for (int k = 0; k < m; ++k)
      if ((now[k].is_sharded(dim) || to[k].is_sharded(dim)) && !(now[k] == to[k])) return false;
    return true;
  };
  for (int m = from.ndim(); m-- > 0;) {
    if (!now[m].is_sharded() || (now[m] == to[m] && outer_agree(m, now[m].dim))) continue;
    const bool direct = to[m].is_sharded() && !(now[m] == to[m]) && outer_agree(m, to[m].dim);
    move(m, direct ? to[m] : Replicate());
  }
  for (int m = 0; m < from.ndim(); ++m) move(m, to[m]);
  return collectives;
}

// For small tensors latency counts: an all_reduce whose result is sliced may replace two collectives.
TEST(PlanCost, SmallTensorsTakeNoMoreCollectivesThanPyTorchsGreedyPlanner) {
  const auto layouts = layouts_of(3, {Replicate(), Shard(0), Shard(1), Shard(2), Partial()});
  for (const Layout& from : layouts)
    for (const Layout& to : layouts) {
      if (!allowed(from, to)) continue;
      bool expands = false;
      for (int m = 0; m < 3; ++m) expands = expands || (from[m].is_sharded() && to[m].is_partial());
      if (expands) continue;  // PyTorch has no such step
      const auto steps = plan_steps({2, 2, 2}, {4, 5, 3}, 4, from, to);
      const auto ours = std::ranges::count_if(
          steps, [](const PlanStep& step) { return communicates(step.kind); });
      EXPECT_LE(ours, greedy_collectives(from, to)) << trace(from, steps);
    }
}

}  // namespace
}  // namespace coshard
