#include "dtensor/redistribute/plan.h"

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

std::string trace(const Layout& from, const Layout& to) {
  Layout now = from;
  std::string text = to_string(now);
  for (const Transition& t : transitions(from, to)) {
    now[t.mesh_dim] = t.to;
    text += "->" + to_string(now);
  }
  return text;
}

TEST(Plan, OneDimensionIsOneStep) {
  EXPECT_EQ(trace(Shard(0), Replicate()), "S(0)->R");
  EXPECT_EQ(trace(Shard(0), Shard(1)), "S(0)->S(1)");
  EXPECT_EQ(trace(Partial(), Shard(1)), "P(sum)->S(1)");
  EXPECT_EQ(trace(Replicate(), Shard(1)), "R->S(1)");
  EXPECT_EQ(trace(Shard(2), Shard(2)), "S(2)");
}

TEST(Plan, InnerShardsOfADimensionAreUndoneFirstAndMadeLast) {
  EXPECT_EQ(trace(Layout(Shard(0), Shard(0)), Layout(Replicate(), Shard(0))),
            "S(0)S(0)->S(0)R->RR->RS(0)");
  EXPECT_EQ(trace(Layout(Shard(0), Shard(1)), Layout(Shard(1), Shard(0))),
            "S(0)S(1)->S(0)R->S(1)R->S(1)S(0)");
  EXPECT_EQ(trace(Layout(Shard(0), Shard(1)), Layout(Shard(0), Shard(0))), "S(0)S(1)->S(0)S(0)");
}

TEST(Plan, WhatHasNoMeaningIsRefusedWithBothPlacements) {
  try {
    transitions(Shard(0), Partial());
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "cannot redistribute S(0) to P(sum)");
  }
  EXPECT_THROW(transitions(Partial(Reduce::Max), Partial(Reduce::Sum)), Error);
  EXPECT_THROW(transitions(Replicate(), Partial(Reduce::Product)), Error);
  EXPECT_THROW(transitions(Replicate(), Layout(Replicate(), Replicate())), Error);
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

TEST(Plan, AMeshDimensionOfOneRankCommunicatesNothing) {
  testing::on_ranks(1, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {1}, {"tp"});
    for (Placement from : {Shard(0), Shard(1), Partial(), Replicate()})
      for (Placement to : {Shard(0), Shard(1), Replicate()})
        for (const Step& step : plan_for(make_spec(mesh, from, {5, 4}), to).steps)
          EXPECT_EQ(step.kind, StepKind::Slice);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
