// Which steps lead from one layout to another.
#include "dtensor/redistribute/plan.h"

#include <gtest/gtest.h>

#include <coshard/runtime/error.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

std::string traced(const std::vector<int>& mesh, const Shape& shape, const Layout& from,
                   const Layout& to) {
  return trace(from, plan_steps(mesh, shape, 4, from, to));
}

// "reduce_scatter, all_gather"
std::string collectives(const std::vector<int>& mesh, const Shape& shape, const Layout& from,
                        const Layout& to) {
  std::string text;
  for (const PlanStep& step : plan_steps(mesh, shape, 4, from, to))
    if (communicates(step.kind)) text += str_cat(text.empty() ? "" : ", ", to_string(step.kind));
  return text;
}

TEST(Plan, OneDimensionIsOneStep) {
  EXPECT_EQ(traced({4}, {8, 8, 8}, Shard(0), Replicate()), "S(0) -> R");
  EXPECT_EQ(traced({4}, {8, 8, 8}, Shard(0), Shard(1)), "S(0) -> S(1)");
  EXPECT_EQ(traced({4}, {8, 8, 8}, Partial(), Shard(1)), "P(sum) -> S(1)");
  EXPECT_EQ(traced({4}, {8, 8, 8}, Replicate(), Shard(1)), "R -> S(1)");
  EXPECT_EQ(traced({4}, {8, 8, 8}, Shard(2), Shard(2)), "S(2)");
}

TEST(Plan, ConsecutiveStepsOfAKindAreOneOnTheFlattenedMesh) {
  const Placement r = Replicate(), p = Partial(), a = Partial(Reduce::Avg), s0 = Shard(0);
  for (const Shape& shape : {Shape{16, 24}, Shape{5, 7}}) {  // uneven shards too
    EXPECT_EQ(collectives({4, 2}, shape, Layout(p, p), Layout(r, r)), "all_reduce");
    EXPECT_EQ(collectives({4, 2}, shape, Layout(p, p), Layout(s0, s0)), "reduce_scatter");
    EXPECT_EQ(collectives({4, 2}, shape, Layout(s0, s0), Layout(r, r)), "all_gather");
    EXPECT_EQ(collectives({2, 2, 2}, shape, Layout(p, r, p), Layout(r, r, r)), "all_reduce");
    EXPECT_EQ(collectives({2, 2, 2}, shape, Layout(a, p, a), Layout(r, r, r)), "all_reduce");
    EXPECT_EQ(collectives({2, 2, 2}, shape, Layout(p, a, p), Layout(s0, s0, s0)), "reduce_scatter");
  }
}

TEST(Plan, ReductionsThatDoNotCommuteStayApart) {
  const Placement r = Replicate(), p = Partial(), most = Partial(Reduce::Max);
  EXPECT_EQ(traced({2, 2}, {4, 4}, Layout(p, most), Layout(r, r)), "P(sum)P(max) -> P(sum)R -> RR");
  // An inner Partial that stays is given back after the outer one is reduced.
  EXPECT_EQ(traced({2, 2}, {4, 4}, Layout(p, most), Layout(r, most)),
            "P(sum)P(max) -> P(sum)R -> RR -> RP(max)");
}

TEST(Plan, ShardsGoFromAnyLayoutToAnyOtherInOneCollective) {
  const Placement s0 = Shard(0), s1 = Shard(1), s2 = Shard(2);
  const std::vector<int> mesh{2, 2, 2};
  EXPECT_EQ(collectives({2, 2}, {5, 7}, Layout(s0, s0), Layout(s1, s1)), "all_to_all");
  EXPECT_EQ(collectives(mesh, {8, 8, 8}, Layout(s0, s0, s0), Layout(s1, s1, s1)), "all_to_all");
  EXPECT_EQ(collectives(mesh, {8, 8, 8}, Layout(s0, s1, s2), Layout(s2, s1, s0)), "all_to_all");
  EXPECT_EQ(collectives({4}, {9, 2}, StridedShard(0, 3), s0), "all_to_all");
  EXPECT_EQ(collectives({4}, {9, 2}, StridedShard(0, 3), Replicate()), "all_gather");
  EXPECT_EQ(collectives({2, 2}, {8, 8}, Layout(Replicate(), s0), Layout(s1, s0)), "");
}

TEST(Plan, AShardBecomesASumWithoutACollective) {
  EXPECT_EQ(traced({4}, {5, 2}, Shard(0), Partial()), "S(0) -> P(sum)");
  EXPECT_EQ(collectives({4}, {5, 2}, Shard(0), Partial()), "");
  // and so joins a reduction that is due anyway
  EXPECT_EQ(traced({2, 2}, {4, 4}, Layout(Partial(), Shard(0)), Layout(Replicate(), Replicate())),
            "P(sum)S(0) -> P(sum)P(sum) -> RR");
}

// A reduce_scatter and an all_gather take as long as an all_reduce where latency is nothing; rounding
// must not make two collectives of one.
TEST(Plan, OfEqualTimesTheOneWithFewerCollectives) {
  const Link links[] = {{0, 187'654.321}};
  for (std::int64_t rows = 1; rows < 2000; rows += 7)
    for (const int width : {2, 4, 8}) {
      const auto steps = plan_steps({8}, {rows, 8192}, width, Partial(), Replicate(), links);
      ASSERT_EQ(steps.size(), 1U) << rows << ": " << trace(Partial(), steps);
    }
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
      EXPECT_EQ(plan_steps({1}, {5, 4}, 4, from, to).size(), 0U) << from << to;
      EXPECT_EQ(plan_steps({2, 1}, {5, 4}, 4, Layout(Shard(0), from), Layout(Shard(0), to)).size(),
                0U);
    }
}

}  // namespace
}  // namespace coshard
