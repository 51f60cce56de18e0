#include <coshard/profiling/gather.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "profiling/rank_clock.h"
#include "tests/support/nanoseconds.h"

namespace coshard {
namespace {

TEST(Gather, BringsTheSummariesOfAllRanksToRankZeroInTheirOrder) {
  const Program program = [](World& world) -> Task<void> {
    CommSummary mine;
    for (int i = 0; i <= world.rank(); ++i) {
      CommEvent event;
      event.id = static_cast<std::uint64_t>(i);
      event.bytes = 10;
      event.label = "S(0)->R";
      mine.issued(event, i);
    }
    Task<std::vector<CommSummary>> gathered = gather_summaries(world, mine);
    const std::vector<CommSummary> all = co_await std::move(gathered);
    EXPECT_EQ(all.size(), world.rank() == 0 ? 3U : 0U);
    for (std::size_t r = 0; r < all.size(); ++r)
      EXPECT_EQ(all[r].total().count, static_cast<std::int64_t>(r) + 1);
  };
  run_ranks({.ranks = 3}, program);
}

// Threads have one clock: times stay as they are, however long messages take.
TEST(Gather, BringsTracesWithTheirTimes) {
  const Program program = [](World& world) -> Task<void> {
    ChromeTrace mine;
    for (int i = 0; i < 1000 * world.rank(); ++i)
      mine.computed(std::string("op ") + std::to_string(world.rank()), ComputeClass::Other, i,
                    i + 1);
    Task<std::vector<ChromeTrace>> gathered = gather_traces(world, mine);
    const std::vector<ChromeTrace> all = co_await std::move(gathered);
    EXPECT_EQ(all.size(), world.rank() == 0 ? 3U : 0U);
    for (std::size_t r = 0; r < all.size(); ++r) {
      EXPECT_EQ(all[r].spans().size(), 1000 * r);
      if (r == 0) continue;
      EXPECT_EQ(all[r].spans().back().name, "op " + std::to_string(r));
      EXPECT_EQ(all[r].spans().back().begin, static_cast<std::int64_t>(1000 * r) - 1);
    }
  };
  run_ranks({.ranks = 3}, program);
}

// Ranks that claim clocks of other boots: times are those of rank 0's clock.
TEST(Gather, LinesUpTheClocksOfSeveralHosts) {
  using coshard::testing::kHour;
  const Program program = [](World& world) -> Task<void> {
    if (world.rank() > 0)
      *rank_clock = {str_cat("boot ", world.rank()), world.rank() == 1 ? kHour : -5 * kHour};
    ChromeTrace mine;
    const std::int64_t real = now_ns();
    mine.computed("op", ComputeClass::Other, rank_clock->now(), rank_clock->now() + 10);
    Task<std::vector<ChromeTrace>> gathered = gather_traces(world, mine);
    const std::vector<ChromeTrace> all = co_await std::move(gathered);
    for (const ChromeTrace& trace : all)
      EXPECT_LT(std::abs(trace.spans()[0].begin - real), kHour / 60);
    Task<std::int64_t> measured = clock_offset(world);
    const std::int64_t offset = co_await std::move(measured);
    EXPECT_TRUE(world.rank() > 0 || offset == 0) << offset;
    EXPECT_LT(std::abs(offset + rank_clock->ahead), kHour / 60);
  };
  run_ranks({.ranks = 3}, program);
}

TEST(Gather, OfOneRankIsItsOwn) {
  const Program program = [](World& world) -> Task<void> {
    const CommSummary mine;
    Task<std::vector<CommSummary>> gathered = gather_summaries(world, mine);
    const std::vector<CommSummary> all = co_await std::move(gathered);
    EXPECT_EQ(all.size(), 1U);
  };
  run_ranks({.ranks = 1}, program);
}

}  // namespace
}  // namespace coshard
