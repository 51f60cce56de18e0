// Weaving in `coshard bench overlap`, in sizes that say nothing about speed: what it gives.
#include "profiling/bench/woven.h"

#include <gtest/gtest.h>

namespace coshard::bench {
namespace {

TEST(WovenBench, GivesTheEfficiencyOfTwoHalfBatchesWithItsTarget) {
  OverlapOptions options;
  options.rounds = 1;
  options.compute_ms = 1;
  Report report("overlap");
  measure_woven(report, options, 2);
  for (const char* what : {"plain", "overlapped", "compute"}) {
    const std::string full = std::string("woven_") + what + "_2_ranks";
    ASSERT_NE(report.find(full), nullptr) << full;
    EXPECT_GT(report.find(full)->value, 0) << full;
  }
  const Result* efficiency = report.find("woven_efficiency_2_ranks");
  ASSERT_NE(efficiency, nullptr);
  EXPECT_TRUE(efficiency->more_is_better);
  EXPECT_GT(efficiency->target.value_or(0), 0.8);
}

}  // namespace
}  // namespace coshard::bench
