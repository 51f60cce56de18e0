// Backward schedules in `coshard bench overlap`, in sizes that say nothing about speed: what they give.
#include <gtest/gtest.h>

#include "profiling/bench/schedules.h"

namespace coshard::bench {
namespace {

TEST(BackwardSchedulesBench, GivesTheEfficiencyOfEachScheduleWithItsTarget) {
  OverlapOptions options;
  options.rounds = 1;
  options.compute_ms = 1;
  Report report("overlap");
  measure_backward_schedules(report, options, 2);
  for (const char* name : {"backward_all_gather_linear", "backward_reduce_scatter_weight",
                           "backward_linear_reduce_scatter", "backward_linear_all_reduce"}) {
    for (const char* what : {"plain", "overlapped", "compute"}) {
      const std::string full = std::string(name) + "_" + what + "_2_ranks";
      ASSERT_NE(report.find(full), nullptr) << full;
      EXPECT_GT(report.find(full)->value, 0) << full;
    }
    const Result* efficiency = report.find(std::string(name) + "_efficiency_2_ranks");
    ASSERT_NE(efficiency, nullptr) << name;
    EXPECT_TRUE(efficiency->more_is_better);
    EXPECT_GT(efficiency->target.value_or(0), 0.8);
  }
}

}  // namespace
}  // namespace coshard::bench
