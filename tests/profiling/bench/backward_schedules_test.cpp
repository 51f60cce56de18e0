// Backward schedules in `coshard bench overlap`: what they give.
#include <gtest/gtest.h>

#include "profiling/bench/schedules.h"
#include "tests/profiling/bench/schedule_results.h"

namespace coshard::bench {
namespace {

TEST(BackwardSchedulesBench, GivesTheEfficiencyOfEachScheduleWithItsTarget) {
  Report report("overlap");
  measure_backward_schedules(report, least_of_overlap(), 2);
  expect_efficiencies(report, {"backward_all_gather_linear", "backward_reduce_scatter_weight",
                               "backward_linear_reduce_scatter", "backward_linear_all_reduce"});
}

}  // namespace
}  // namespace coshard::bench
