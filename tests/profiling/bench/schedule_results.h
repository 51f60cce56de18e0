#pragma once
// What the tests of the schedules in `coshard bench overlap` share.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "profiling/bench/schedules.h"

namespace coshard::bench {

// A size that says nothing about speed.
inline OverlapOptions least_of_overlap() {
  OverlapOptions options;
  options.rounds = 1;
  options.compute_ms = 1;
  return options;
}

// Of two ranks: the times of each schedule, and its efficiency with a target.
inline void expect_efficiencies(const Report& report, const std::vector<std::string>& schedules) {
  for (const std::string& name : schedules) {
    for (const char* what : {"plain", "overlapped", "compute"}) {
      const std::string full = name + "_" + what + "_2_ranks";
      ASSERT_NE(report.find(full), nullptr) << full;
      EXPECT_GT(report.find(full)->value, 0) << full;
    }
    const Result* efficiency = report.find(name + "_efficiency_2_ranks");
    ASSERT_NE(efficiency, nullptr) << name;
    EXPECT_TRUE(efficiency->more_is_better) << name;
    EXPECT_GT(efficiency->target.value_or(0), 0.8) << name;
    EXPECT_NE(report.find(name + "_copies_2_ranks"), nullptr) << name;
    EXPECT_NE(report.find(name + "_link_efficiency_2_ranks"), nullptr) << name;
  }
}

}  // namespace coshard::bench
