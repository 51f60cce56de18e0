// The training step of two replicas in `coshard bench overlap`: what it gives. Its figures say
// nothing on a machine that does something else.
#include <gtest/gtest.h>

#include "profiling/bench/schedules.h"

namespace coshard::bench {
namespace {

TEST(DataParallelBench, GivesTheStepBesideItsClosedFormBest) {
  OverlapOptions options;
  options.rounds = 1;
  Report report("overlap");
  measure_data_parallel(report, options);
  for (const char* what : {"serial", "overlapped", "compute", "best", "share_of_best"}) {
    const Result* result = report.find(std::string("data_parallel_") + what + "_2_ranks");
    ASSERT_NE(result, nullptr) << what;
    EXPECT_GT(result->value, 0) << what;
  }
  EXPECT_EQ(report.find("data_parallel_share_of_best_2_ranks")->target, 0.92);
  // 13 MB of gradients in buckets of an eighth, the first and the last ones smaller
  EXPECT_GE(report.machine["buckets_dp_2_ranks"], 2);
  EXPECT_LE(report.machine["buckets_dp_2_ranks"], 14);
}

}  // namespace
}  // namespace coshard::bench
