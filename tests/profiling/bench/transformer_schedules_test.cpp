// The Transformer's step in `coshard bench overlap`, in a size that says nothing about speed: what
// it gives.
#include <gtest/gtest.h>

#include <cmath>

#include "profiling/bench/schedules.h"

namespace coshard::bench {
namespace {

TEST(TransformerSchedulesBench, GivesTheStepBesideTheClosedFormBest) {
  OverlapOptions options;
  options.rounds = 1;
  options.compute_ms = 1;
  Report report("overlap");
  measure_transformer(report, options, 2);
  for (const char* what : {"serial", "plain", "overlapped", "compute", "closed_form_best"}) {
    const std::string full = std::string("transformer_") + what + "_2_ranks";
    ASSERT_NE(report.find(full), nullptr) << full;
    EXPECT_GT(report.find(full)->value, 0) << full;
  }
  EXPECT_GE(report.find("transformer_serial_2_ranks")->value,
            report.find("transformer_closed_form_best_2_ranks")->value);
  const auto ms = [&](const char* what) {
    return report.find(std::string("transformer_") + what + "_2_ranks")->value;
  };
  const double efficiency = efficiency_of(ms("plain"), ms("overlapped"), ms("compute"));
  if (std::isnan(efficiency))
    EXPECT_TRUE(std::isnan(ms("efficiency")));
  else
    EXPECT_EQ(ms("efficiency"), efficiency);
  const Result* share = report.find("transformer_share_of_best_2_ranks");
  ASSERT_NE(share, nullptr);
  EXPECT_EQ(share->target, 0.92);
  EXPECT_TRUE(share->more_is_better);
}

}  // namespace
}  // namespace coshard::bench
