#include "dtensor/redistribute/plan.h"

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

std::string traced(const std::vector<int>& mesh, const Shape& shape, const Layout& from,
                   const Layout& to) {
  return trace(from, plan_steps(mesh, shape, from, to));
}

TEST(Plan, OneDimensionIsOneStep) {
  EXPECT_EQ(traced({4}, {8, 8, 8}, Shard(0), Replicate()), "S(0) -> R");
  EXPECT_EQ(traced({4}, {8, 8, 8}, Shard(0), Shard(1)), "S(0) -> S(1)");
  EXPECT_EQ(traced({4}, {8, 8, 8}, Partial(), Shard(1)), "P(sum) -> S(1)");
  EXPECT_EQ(traced({4}, {8, 8, 8}, Replicate(), Shard(1)), "R -> S(1)");
  EXPECT_EQ(traced({4}, {8, 8, 8}, Shard(2), Shard(2)), "S(2)");
}

TEST(Plan, TheSameQuestionGivesTheSameCachedPlan) {
  testing::on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const auto spec = make_spec(mesh, Shard(0), {5, 4});
    EXPECT_EQ(&plan_for(spec, Replicate()), &plan_for(spec, Replicate()));
    EXPECT_EQ(&plan_for(spec, Shard(-1)), &plan_for(spec, Shard(1)));
    co_return;
  });
}

TEST(Plan, WhatHasNoMeaningIsRefusedWithBothPlacements) {
  const auto refuse = [](const Layout& from, const Layout& to) {
    return traced({2}, {4, 4}, from, to);
  };
  try {
    refuse(Shard(0), Partial(Reduce::Max));
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "cannot redistribute S(0) to P(max)");
  }
  EXPECT_THROW(refuse(Partial(Reduce::Max), Partial(Reduce::Sum)), Error);
  EXPECT_THROW(refuse(Replicate(), Partial(Reduce::Product)), Error);
  EXPECT_THROW(refuse(Replicate(), Layout(Replicate(), Replicate())), Error);
}

TEST(Plan, AMeshDimensionOfOneRankCommunicatesNothing) {
  for (Placement from :
       {Shard(0), StridedShard(1, 2), Partial(), Partial(Reduce::Max), Replicate()})
    for (Placement to : {Shard(0), StridedShard(0, 3), Shard(1), Replicate()}) {
      EXPECT_EQ(plan_steps({1}, {5, 4}, from, to).size(), 0U) << from << to;
      EXPECT_EQ(plan_steps({2, 1}, {5, 4}, Layout(Shard(0), from), Layout(Shard(0), to)).size(),
                0U);
    }
}

}  // namespace
}  // namespace coshard
