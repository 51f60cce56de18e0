// The layouts that a plan may pass through.
#include "dtensor/redistribute/plan_layouts.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace coshard {
namespace {

std::vector<std::string> listed(const std::vector<int>& mesh, std::size_t ndim, const Layout& from,
                                const Layout& to) {
  std::vector<std::string> texts;
  const auto layouts = plan_layouts(mesh, Shape::filled(ndim, 8), from, to);
  for (const Layout& layout : *layouts) texts.push_back(to_string(layout));
  std::ranges::sort(texts);
  return texts;
}

using Texts = std::vector<std::string>;

TEST(PlanLayouts, ShardsMayBeNestedInAnyOrder) {
  const Placement r = Replicate();
  EXPECT_EQ(listed({2, 3}, 1, Layout(r, r), Layout(r, r)),
            (Texts{"RR", "RS(0)", "S(0)R", "S(0)S(0)", "_S(0,3)S(0)"}));
  // 1, 3, 6 and 6 orders of none, one, two and three mesh dimensions
  EXPECT_EQ(listed({2, 3, 4}, 1, Layout(r, r, r), Layout(r, r, r)).size(), 16U);
  EXPECT_EQ(listed({4, 4, 4}, 4, Layout(r, r, r), Layout(r, r, r)).size(), 193U);
}

TEST(PlanLayouts, PartialsAreThoseOfTheEndsAndSumsBesideSums) {
  EXPECT_EQ(listed({2, 2}, 0, Layout(Partial(Reduce::Max), Replicate()),
                   Layout(Replicate(), Replicate())),
            (Texts{"P(max)R", "RR"}));
  EXPECT_EQ(listed({2, 2}, 0, Layout(Partial(Reduce::Avg), Replicate()),
                   Layout(Replicate(), Replicate())),
            (Texts{"P(avg)P(sum)", "P(avg)R", "P(sum)P(sum)", "P(sum)R", "RP(sum)", "RR"}));
}

TEST(PlanLayouts, ForeignStridesOfTheEndsAreKept) {
  EXPECT_EQ(listed({2}, 1, StridedShard(0, 5), Shard(0)), (Texts{"R", "S(0)", "_S(0,5)"}));
  const auto both =
      listed({2, 2}, 1, Layout(StridedShard(0, 5), Shard(0)), Layout(Shard(0), Shard(0)));
  for (const char* text : {"_S(0,5)R", "_S(0,5)S(0)"})
    EXPECT_TRUE(std::ranges::binary_search(both, text)) << text;
}

TEST(PlanLayouts, AMeshDimensionOfOneRankIsR) {
  EXPECT_EQ(listed({1, 2}, 1, Layout(Replicate(), Shard(0)), Layout(Replicate(), Replicate())),
            (Texts{"RR", "RS(0)"}));
}

// Whatever was asked before: what is kept for some ends lacks others.
TEST(PlanLayouts, AreLimitedOnMeshesOfManyDimensionsAndKnowBothEnds) {
  const Placement r = Replicate(), p = Partial();
  for (const int size : {1, 2}) {
    const std::vector<int> mesh{2, 2, 2, 2, 2, size};
    for (int round = 0; round < 2; ++round)
      for (const std::size_t ndim : {1, 2, 4, 8})
        for (int d = 0; d < static_cast<int>(ndim); ++d)
          for (const Layout& from :
               {Layout(Shard(d), r, r, r, r, r), Layout(p, p, p, p, p, r),
                Layout(p, StridedShard(d, 2), p, Shard(0), r, r),
                Layout(StridedShard(d, 5), StridedShard(d, 7), StridedShard(0, 3), p, r, r)}) {
            const Layout to(Shard(0), r, r, Shard(d), r, r);
            const auto layouts = plan_layouts(mesh, Shape::filled(ndim, 64), from, to);
            EXPECT_LE(layouts->size(), kMostLayouts);
            EXPECT_NE(std::ranges::find(*layouts, from), layouts->end()) << from;
            EXPECT_NE(std::ranges::find(*layouts, to), layouts->end()) << to;
          }
  }
}

// A sum over a slow and a fast link is hierarchical also where only some layouts are tried.
TEST(PlanLayouts, LimitedOnesStillShareTheWorkOfASum) {
  const std::vector<int> mesh{2, 2, 2, 2, 2, 2};
  const Layout sums = Layout::filled(6, Partial());
  const auto layouts = plan_layouts(mesh, {64, 1 << 20, 64}, sums, Layout::filled(6, Replicate()));
  const Layout shared(Partial(), Shard(1), Shard(1), Shard(1), Shard(1), Shard(1));
  EXPECT_NE(std::ranges::find(*layouts, shared), layouts->end());
}

}  // namespace
}  // namespace coshard
