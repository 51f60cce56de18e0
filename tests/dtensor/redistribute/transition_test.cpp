// The closed form against the plans that it stands for.
#include "dtensor/redistribute/transition.h"

#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/redistribute/planner.h"
#include "tests/dtensor/redistribute/layouts.h"

namespace coshard {
namespace {

using testing::allowed;
using testing::layouts_of;

// What a plan takes, but for packing.
Transition planned(const std::vector<int>& mesh, std::span<const LinkCost> links,
                   const Shape& shape, const Layout& from, const Layout& to) {
  Transition sum;
  for (const PlanStep& step : plan_steps(mesh, shape, 4, from, to, links)) {
    const bool moves = communicates(step.kind);
    sum.communicates = sum.communicates || moves;
    sum.time += time_of(moves, 4 * step.moved, 0, slowest(links, step.dims));
  }
  return sum;
}

void compare(const std::vector<int>& mesh, const std::vector<LinkCost>& links, const Shape& shape,
             double slack) {
  const auto layouts =
      layouts_of(static_cast<int>(mesh.size()), {Replicate(), Shard(0), Shard(1), Partial()});
  for (const Layout& from : layouts)
    for (const Layout& to : layouts) {
      bool expands = false;
      for (int m = 0; m < to.ndim(); ++m)
        expands = expands || (from[m].is_sharded() && to[m].is_partial());
      if (!allowed(from, to) || expands) continue;
      const Transition right = planned(mesh, links, shape, from, to);
      const Transition told = time_to_redistribute({mesh, links}, shape, 4, from, to);
      EXPECT_EQ(told.communicates, right.communicates) << from << to << shape;
      // Where sums are due the planner knows better ways: it makes sums of shards for nothing, and
      // has replicas share the work.
      const bool ways = from.has_partial() && mesh.size() > 1;
      const double latency = slowest(links, ~0U).latency;
      const double most = (ways ? 2.5 * right.time + 2 * latency : (1 + slack) * right.time) + 0.01;
      EXPECT_LE(told.time, most) << from << to << shape;
      if (!ways) {
        EXPECT_GE((1 + slack) * told.time + 0.01, right.time) << from << to << shape;
      }
    }
}

TEST(Transition, IsWhatThePlannerTakesOnOneMeshDimensionAndNearItOnSeveral) {
  for (const Shape& shape : {Shape{64, 64}, Shape{4096, 1024}}) {
    compare({4}, {}, shape, 0);
    compare({4, 2}, {}, shape, 0.2);  // the planner may move more to copy less
    compare({2, 2, 2}, {}, shape, 0.2);
    compare({4, 2}, {{50, 1'000}, {2, 100'000}}, shape, 1.6);  // where it takes several steps
  }
}

TEST(Transition, OfUnevenSizesIsNear) {
  compare({4}, {}, {5, 4099}, 0.3);
  compare({4, 2}, {}, {1001, 403}, 0.3);
}

TEST(Transition, OnlyAReplicaBecomesPartial) {
  const std::vector<int> mesh{4};
  const auto time = [&](Placement from, Placement to) {
    return time_to_redistribute({mesh, {}}, {64, 64}, 4, from, to).time;
  };
  EXPECT_TRUE(std::isinf(time(Shard(0), Partial())));
  EXPECT_TRUE(std::isinf(time(Partial(), Partial(Reduce::Max))));
  EXPECT_TRUE(std::isinf(time(Replicate(), Partial(Reduce::Product))));
  EXPECT_LT(time(Replicate(), Partial()), 1);
  EXPECT_EQ(time(Partial(), Partial()), 0);
}

}  // namespace
}  // namespace coshard
