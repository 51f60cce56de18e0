// `coshard bench overlap` in sizes that say nothing about speed: what it prints.
#include <gtest/gtest.h>

#include "profiling/bench/benches.h"
#include "tests/support/json.h"

namespace coshard::bench {
namespace {

TEST(OverlapBench, GivesTheShareOfTwoBranchesAndOfOneWithTheirTargetsAndTheLink) {
  OverlapOptions options;
  options.ranks = 2;
  options.steps = 2;
  options.rounds = 1;
  options.compute_ms = 1;
  const Report report = bench_overlap(options);
  for (const char* name :
       {"serial_2_ranks", "two_branches_2_ranks", "compute_2_ranks", "emulated_link_2_ranks"}) {
    ASSERT_NE(report.find(name), nullptr) << name;
    EXPECT_GT(report.find(name)->value, 0) << name;
  }
  ASSERT_NE(report.find("hidden_share_2_ranks"), nullptr);
  EXPECT_EQ(report.find("hidden_share_2_ranks")->target, 0.97);
  EXPECT_TRUE(report.find("hidden_share_2_ranks")->more_is_better);
  const Result* control = report.find("hidden_share_one_branch_2_ranks");
  ASSERT_NE(control, nullptr);
  EXPECT_EQ(control->target, 0.05);
  EXPECT_GE(control->value, 0);
  EXPECT_EQ(control->min, control->value);  // of one round
  EXPECT_EQ(control->max, control->value);
  EXPECT_TRUE(coshard::testing::json_holds(report.json(), R"(
assert d['bench'] == 'overlap'
assert d['machine']['emulated_link_2_ranks'].startswith('20us,'), d['machine']
assert 'emulated_link_2_ranks' in [r['name'] for r in d['results']]
)"));
}

}  // namespace
}  // namespace coshard::bench
