// Schedules in `coshard bench overlap`: what they give.
#include "profiling/bench/schedules.h"

#include <gtest/gtest.h>

#include "tests/profiling/bench/schedule_results.h"

namespace coshard::bench {
namespace {

TEST(SchedulesBench, GivesTheEfficiencyOfEachScheduleWithItsTarget) {
  Report report("overlap");
  measure_schedules(report, least_of_overlap(), 2);
  expect_efficiencies(report, {"all_gather_linear", "linear_reduce_scatter", "linear_all_reduce"});
}

}  // namespace
}  // namespace coshard::bench
