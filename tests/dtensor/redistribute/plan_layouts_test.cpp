// The layouts that a plan may pass through.
#include "dtensor/redistribute/plan_layouts.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace coshard {
namespace {

std::vector<std::string> listed(const std::vector<int>& mesh, int ndim, const Layout& from,
                                const Layout& to) {
  std::vector<std::string> texts;
  for (const Layout& layout : plan_layouts(mesh, ndim, from, to))
    texts.push_back(to_string(layout));
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

TEST(PlanLayouts, AreLimitedOnMeshesOfManyDimensions) {
  const Placement r = Replicate(), p = Partial();
  const std::vector<int> mesh{2, 2, 2, 2, 2, 2};
  for (int ndim : {1, 2, 4, 8}) {
    const Layout from(p, StridedShard(0, 2), p, Shard(0), r, p),
        to(Shard(0), r, r, Shard(ndim - 1), r, r);
    const auto& layouts = plan_layouts(mesh, ndim, from, to);
    EXPECT_LE(layouts.size(), kMostLayouts);
    EXPECT_NE(std::ranges::find(layouts, from), layouts.end());
    EXPECT_NE(std::ranges::find(layouts, to), layouts.end());
  }
}

}  // namespace
}  // namespace coshard
