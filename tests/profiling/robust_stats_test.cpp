#include "profiling/robust_stats.h"

#include <gtest/gtest.h>

namespace coshard {
namespace {

TEST(RobustStats, OneSlowRunMovesNeitherMedianNorSpread) {
  const RobustStats stats = robust_stats({3, 1, 2, 1000, 4});
  EXPECT_EQ(stats.median, 3);
  EXPECT_EQ(stats.spread, 1);
  EXPECT_EQ(stats.min, 1);
  EXPECT_EQ(stats.max, 1000);
  EXPECT_EQ(stats.count, 5U);
}

TEST(RobustStats, TheMedianOfAnEvenNumberLiesBetweenTheMiddleTwo) {
  EXPECT_EQ(robust_stats({4, 1, 2, 3}).median, 2.5);
}

TEST(RobustStats, AreZeroForNothing) {
  EXPECT_EQ(robust_stats({}).count, 0U);
  EXPECT_EQ(robust_stats({}).median, 0);
}

}  // namespace
}  // namespace coshard
