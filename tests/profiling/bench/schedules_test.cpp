// Schedules in `coshard bench overlap`: what they give.
#include "profiling/bench/schedules.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/profiling/bench/schedule_results.h"

namespace coshard::bench {
namespace {

TEST(SchedulesBench, GivesTheEfficiencyOfEachScheduleWithItsTarget) {
  Report report("overlap");
  measure_schedules(report, least_of_overlap(), 2);
  expect_efficiencies(report, {"all_gather_linear", "linear_reduce_scatter", "linear_all_reduce"});
}

constexpr ScheduleRound kLoses{66.6, 75.9, 47.3}, kInverted{50, 60, 55}, kHides{60, 50.5, 50};

Report report_of(const std::vector<ScheduleRound>& rounds, double copies_ms = 0) {
  Report report("overlap");
  add_schedule(report, "layer", 2, rounds, {{50 + copies_ms, 0, 50}}, 0.97);
  return report;
}

TEST(SchedulesBench, AnEfficiencyIsThatOfTheMediansThatAreGiven) {
  // The ratio of the inverted round is 2: a loss would count as more than hidden.
  for (const auto& rounds : {std::vector{kLoses, kLoses, kInverted}, std::vector{kLoses}}) {
    const Report report = report_of(rounds);
    const Result& efficiency = *report.find("layer_efficiency_2_ranks");
    const double plain = report.find("layer_plain_2_ranks")->value;
    const double overlapped = report.find("layer_overlapped_2_ranks")->value;
    const double compute = report.find("layer_compute_2_ranks")->value;
    EXPECT_DOUBLE_EQ(efficiency.value, 1 - (overlapped - compute) / (plain - compute));
    EXPECT_LT(efficiency.value, 0);
    EXPECT_EQ(efficiency.ok(), false);
  }
  EXPECT_DOUBLE_EQ(report_of({kHides}).find("layer_efficiency_2_ranks")->value, 0.95);
}

TEST(SchedulesBench, AnEfficiencyThatTheTimesDoNotGiveHasNoValueAndMeetsNoTarget) {
  // plain is no longer than compute; overlapped is far below compute
  for (const auto& rounds :
       {std::vector{kInverted, kInverted, kHides}, std::vector{ScheduleRound{60, 49, 50}}}) {
    const Report report = report_of(rounds);
    EXPECT_TRUE(std::isnan(report.find("layer_efficiency_2_ranks")->value));
    EXPECT_EQ(report.find("layer_efficiency_2_ranks")->ok(), std::nullopt);
    EXPECT_EQ(report.find("layer_efficiency_2_ranks")->target, 0.97);
  }
  const Report report = report_of({kHides}, 12);  // more than the collective takes
  EXPECT_DOUBLE_EQ(report.find("layer_efficiency_2_ranks")->value, 0.95);
  EXPECT_TRUE(std::isnan(report.find("layer_link_efficiency_2_ranks")->value));
}

}  // namespace
}  // namespace coshard::bench
