// Weaving in `coshard bench overlap`: what it gives.
#include "profiling/bench/woven.h"

#include <gtest/gtest.h>

#include "tests/profiling/bench/schedule_results.h"

namespace coshard::bench {
namespace {

TEST(WovenBench, GivesTheEfficiencyOfTwoHalfBatchesWithItsTarget) {
  Report report("overlap");
  measure_woven(report, least_of_overlap(), 2);
  expect_efficiencies(report, {"woven"});
}

}  // namespace
}  // namespace coshard::bench
