// Random programs of DTensors: redistributes awaited later and in other orders, by copies, shard by
// shard, chained, deferred, over several meshes with outsiders; transfers; backward walks woven
// with the siblings'. Of one structure they give what plain tensors give. Where one rank differs,
// no number is wrong, and every rank ends with a typed error or what the program says.
#include <gtest/gtest.h>

#include "tests/dtensor/simulation/random_dtensors.h"
#include "tests/support/seeds.h"

namespace coshard::testing {
namespace {

std::string ends_of(const Report& report) {
  std::string all = str_cat(report.end, "\n");
  for (std::size_t r = 0; r < report.ranks.size(); ++r) {
    all += str_cat("rank ", r, " ", report.ranks[r].end, "; its steps:\n");
    for (const std::string& line : report.ranks[r].log) all += str_cat("  ", line, "\n");
  }
  return all;
}

std::string wrong_in(const Report& report) {
  for (const RankReport& rank : report.ranks)
    if (!rank.wrong.empty()) return rank.wrong;
  return "";
}

std::string order_of(const Report& report) {
  for (std::size_t r = 1; r < report.ranks.size(); ++r) {
    const auto &mine = report.ranks[r].log, &first = report.ranks[0].log;
    for (std::size_t i = 0; i < std::max(mine.size(), first.size()); ++i) {
      const std::string here = i < mine.size() ? mine[i] : "the end";
      const std::string there = i < first.size() ? first[i] : "the end";
      if (here != there) return str_cat("rank ", r, ": ", here, "; rank 0: ", there);
    }
  }
  return "";
}

// What is wrong with it; "" when nothing is.
std::string judge(const Report& report) {
  if (std::string wrong = wrong_in(report); !wrong.empty()) return wrong + "\n" + ends_of(report);
  if (report.end.failed) return ends_of(report);
  return order_of(report);
}

void expect_what_plain_tensors_give(bool spread) {
  std::int64_t checked = 0;
  for (std::uint64_t seed = first_seed(); seed < first_seed() + seeds(); ++seed) {
    const Report report = run_random_dtensors(seed, std::nullopt, spread);
    ASSERT_EQ(judge(report), "") << how_to_replay(seed);
    for (const RankReport& rank : report.ranks) checked += rank.checked;
  }
  EXPECT_GT(checked, static_cast<std::int64_t>(seeds()));
}

TEST(RandomDTensors, OfOneStructureGiveWhatPlainTensorsGive) {
  expect_what_plain_tensors_give(false);
}
TEST(RandomDTensors, OverSeveralProcessesGiveWhatPlainTensorsGive) {
  expect_what_plain_tensors_give(true);
}

Difference draw_difference(std::uint64_t seed) {
  Dice dice(~seed);
  Difference drawn;
  drawn.how = static_cast<Differs>(dice.below(kWaysToDiffer));
  drawn.rank = dice.below(2);
  drawn.at = dice.below(20);
  return drawn;
}

std::string judge_difference(const Report& report) {
  // Messages match in the order of issue, whatever their branches (communicator.h).
  const std::string wrong = wrong_in(report);
  if (!wrong.empty() && !wrong.starts_with("a message")) return wrong;
  if (!report.end.failed) return "";  // nobody shares what it did otherwise
  if (report.boom) return "";
  // What cancelled a sibling is told when that cannot end, since it waits in place for who is gone.
  if (report.end.names("planned")) return "";
  if (!report.end.typed) return str_cat(report.end);
  if (report.end.is(ErrorKind::Timeout) && report.end.names("branches of")) return "";
  if (!report.end.names("rank")) return str_cat(report.end);
  return "";
}

// Except where a rank skips or swaps collectives that are alike in branch, line and geometry, which
// no fingerprint can tell apart: 1 of 7,000 seeds, none of the first 5,000.
void expect_no_wrong_number(bool spread) {
  int failed = 0;
  for (std::uint64_t seed = first_seed(); seed < first_seed() + seeds(); ++seed) {
    const Difference difference = draw_difference(seed);
    const Report report = run_random_dtensors(seed, difference, spread);
    failed += report.end.failed ? 1 : 0;
    ASSERT_EQ(judge_difference(report), "")
        << "difference " << static_cast<int>(difference.how) << " at " << difference.at
        << " on rank " << difference.rank << "; " << how_to_replay(seed) << "\n"
        << ends_of(report);
  }
  if (seeds() >= 100) {
    EXPECT_GT(failed, static_cast<int>(seeds() / 3));
  }
}

TEST(RandomDTensors, WhereOneRankDiffersGiveNoWrongNumber) { expect_no_wrong_number(false); }
TEST(RandomDTensors, WhereOneRankOfSeveralProcessesDiffersGiveNoWrongNumber) {
  expect_no_wrong_number(true);
}

}  // namespace
}  // namespace coshard::testing
