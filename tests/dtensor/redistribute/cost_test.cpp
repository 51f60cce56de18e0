// Plans against every other way: an exhaustive search over all layouts, and PyTorch's greedy
// planner.
#include <coshard/dtensor/redistribute/cost.h>

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "dtensor/redistribute/planner.h"
#include "dtensor/redistribute/pricing.h"
#include "tests/dtensor/redistribute/layouts.h"

namespace coshard {
namespace {

using testing::allowed;
using testing::layouts_of;

double time_of_plan(const std::vector<PlanStep>& steps) {
  double time = 0;
  for (const PlanStep& step : steps) time += step.time;
  return time;
}

double moved_by(const std::vector<PlanStep>& steps) {
  double moved = 0;
  for (const PlanStep& step : steps) moved += step.moved;
  return moved;
}

// The least of `weigh(step)` along any path from each layout to each other (Floyd and Warshall).
template <class Weigh>
std::vector<std::vector<double>> all_paths(const std::vector<int>& mesh, const Shape& shape,
                                           const std::vector<Layout>& layouts, const Weigh& weigh) {
  Pricing pricing(mesh, shape, 4);
  const std::size_t n = layouts.size();
  std::vector<std::vector<double>> best(
      n, std::vector<double>(n, std::numeric_limits<double>::infinity()));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j)
      if (const auto move = pricing.move(pricing.ready(layouts[i]), pricing.ready(layouts[j])))
        best[i][j] = weigh(*move);
  for (std::size_t i = 0; i < n; ++i) best[i][i] = 0;
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        best[i][j] = std::min(best[i][j], best[i][k] + best[k][j]);
  return best;
}

void compare_with_all(const std::vector<int>& mesh, const Shape& shape,
                      const std::vector<Placement>& placements) {
  Pricing pricing(mesh, shape, 4);
  const auto layouts = layouts_of(static_cast<int>(mesh.size()), placements);
  const auto times = all_paths(mesh, shape, layouts, [](const Move& move) { return move.time; });
  for (std::size_t i = 0; i < layouts.size(); ++i)
    for (std::size_t j = 0; j < layouts.size(); ++j) {
      if (layouts[j].has_partial()) continue;
      const auto steps = plan_steps(mesh, shape, layouts[i], layouts[j]);
      // One collective more is taken where an all_reduce would be cut afterwards.
      EXPECT_LE(time_of_plan(steps), 1.15 * times[i][j] + 1.01 * time_of(true, 0, 0))
          << trace(layouts[i], steps) << shape;
      if (layouts[i].has_partial()) continue;
      EXPECT_LE(time_of_plan(steps), 1.15 * times[i][j]) << trace(layouts[i], steps) << shape;
      // One step moves exactly what is missing; what another moves beyond that it does not pack.
      const auto direct = pricing.move(pricing.ready(layouts[i]), pricing.ready(layouts[j]));
      if (!direct) continue;
      EXPECT_LE(time_of(false, 4 * (moved_by(steps) - direct->moved), 0),
                time_of(false, 0, 4 * direct->copied) + 1e-9)
          << trace(layouts[i], steps) << shape;
    }
}

TEST(PlanCost, NoWayThroughOtherLayoutsIsMuchFaster) {
  for (const Shape& shape : {Shape{8, 6}, Shape{5, 3}, Shape{4096, 2048}}) {
    compare_with_all({4, 2}, shape, {Replicate(), Shard(0), Shard(1), StridedShard(0, 2)});
    compare_with_all({4, 2}, shape,
                     {Replicate(), Shard(0), Shard(1), Partial(), Partial(Reduce::Avg)});
  }
  compare_with_all({2, 2, 2}, {512, 512, 64}, {Replicate(), Shard(0), Shard(1), Partial()});
}

using Kinds = std::map<StepKind, int>;

// PyTorch's planner: inner shards in the way are undone or turned into the target at once, from the
// innermost mesh dimension to the outermost; the rest follows in the other direction.
Kinds greedy_kinds(const Layout& from, const Layout& to) {
  Kinds kinds;
  Layout now = from;
  const auto move = [&](int m, Placement target) {
    const Placement before = std::exchange(now[m], target);
    if (before == target || before.is_replicate()) return;
    ++kinds[before.is_partial()
                ? (target.is_sharded() ? StepKind::ReduceScatter : StepKind::AllReduce)
            : target.is_replicate() ? StepKind::AllGather
            : target.is_partial()   ? StepKind::ShardToPartial
                                    : StepKind::AllToAll];
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
  return kinds;
}

TEST(PlanCost, SmallTensorsTakeNoCollectiveThatPyTorchsGreedyPlannerDoesNot) {
  const auto layouts = layouts_of(3, {Replicate(), Shard(0), Shard(1), Shard(2), Partial()});
  for (const Layout& from : layouts)
    for (const Layout& to : layouts) {
      if (!allowed(from, to)) continue;
      bool expands = false;
      for (int m = 0; m < 3; ++m) expands = expands || (from[m].is_sharded() && to[m].is_partial());
      if (expands) continue;  // PyTorch has no such step
      const auto steps = plan_steps({2, 2, 2}, {4, 5, 3}, from, to);
      Kinds ours, most = greedy_kinds(from, to);
      for (const PlanStep& step : steps) ++ours[step.kind];
      const auto over = [&](StepKind kind) { return std::max(0, ours[kind] - most[kind]); };
      EXPECT_EQ(over(StepKind::AllGather), 0) << trace(from, steps);
      EXPECT_EQ(over(StepKind::AllReduce), 0) << trace(from, steps);
      // An all_to_all may stand for an all_gather, a reduce_scatter for an all_reduce.
      EXPECT_LE(over(StepKind::AllToAll), most[StepKind::AllGather] - ours[StepKind::AllGather])
          << trace(from, steps);
      EXPECT_LE(over(StepKind::ReduceScatter),
                most[StepKind::AllReduce] - ours[StepKind::AllReduce])
          << trace(from, steps);
    }
}

}  // namespace
}  // namespace coshard
