// The gate on drawn shapes and links, in sizes that say nothing about speed: what it gives.
#include "profiling/bench/gate_draws.h"

#include <gtest/gtest.h>

#include <cmath>

namespace coshard::bench {
namespace {

TEST(GateDraws, CountsWhatOverlapsAndWhatLoses) {
  OverlapOptions options;
  options.rounds = 1;
  options.draws = 2;
  Report report("overlap");
  measure_draws(report, options);
  for (const std::string prefix : {"gate_", "gate_plain_"}) {
    for (const char* name :
         {"median_speedup", "least_speedup", "least_lower_bound", "losing_draws"})
      ASSERT_NE(report.find(prefix + name), nullptr) << prefix << name;
  }
  const double overlapped = report.find("gate_overlapped_draws")->value;
  EXPECT_EQ(overlapped + report.find("gate_plain_draws")->value, 6);
  EXPECT_EQ(report.find("gate_least_lower_bound")->target, 0.98);
  EXPECT_EQ(report.find("gate_losing_draws")->target, 0);
}

TEST(GateDraws, WithoutALayerThatOverlapsThereIsNoSpeedUp) {
  Report report("overlap");
  add_speedups(report, "gate", {});
  EXPECT_EQ(report.find("gate_losing_draws")->ok(), true);
  for (const char* name : {"gate_median_speedup", "gate_least_speedup", "gate_least_lower_bound"}) {
    EXPECT_TRUE(std::isnan(report.find(name)->value)) << name;
    EXPECT_EQ(report.find(name)->ok(), std::nullopt) << name;
  }
}

TEST(GateDraws, GivesTheLeastOfTheLayersAndHowManyLose) {
  Report report("overlap");
  add_speedups(report, "gate", {{1.4, 1.2, 1.3}, {0.9, 0.8, 0.7}, {1.1, 1.1, 1.1}});
  EXPECT_EQ(report.find("gate_median_speedup")->value, 1.1);
  EXPECT_EQ(report.find("gate_least_speedup")->value, 0.8);
  EXPECT_EQ(report.find("gate_least_lower_bound")->value, 0.7);
  EXPECT_EQ(report.find("gate_losing_draws")->value, 1);
}

TEST(GateDraws, BoundsAMedianByOrderStatistics) {
  std::vector<double> samples;
  for (int i = 21; i > 0; --i) samples.push_back(i);
  EXPECT_EQ(median_bounds(samples).low, 7);  // 3.9 % of 21 coins show fewer than 7 heads
  EXPECT_EQ(median_bounds(samples).high, 15);
  EXPECT_EQ(median_bounds({3, 1, 2}).low, 1);
  EXPECT_EQ(median_bounds({3, 1, 2}).high, 3);
  EXPECT_EQ(median_bounds({5}).low, 5);
  EXPECT_EQ(median_bounds({}).low, 0);
}

}  // namespace
}  // namespace coshard::bench
