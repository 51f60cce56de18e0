#include <coshard/profiling/comm_summary.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <vector>

namespace coshard {
namespace {

constexpr std::int64_t kMs = 1'000'000;

CommEvent event(std::uint64_t id, const char* label, std::int64_t bytes) {
  CommEvent made;
  made.id = id;
  made.kind = CollectiveKind::AllReduce;
  made.label = label;
  made.bytes = bytes;
  return made;
}

TEST(CommSummary, HiddenIsWhatTheHostDidNotWaitFor) {
  CommSummary table;
  table.issued(event(1, "P->R", 1000), 10 * kMs);
  table.ready(event(1, "P->R", 1000), 17 * kMs, 20 * kMs, 20 * kMs);
  const CommSummary::Row row = table.rows().at(0);
  EXPECT_EQ(row.count, 1);
  EXPECT_EQ(row.in_flight_ns, 10 * kMs);
  EXPECT_EQ(row.exposed_ns, 3 * kMs);
  EXPECT_NEAR(row.hidden(), 0.7, 1e-12);
  EXPECT_NEAR(row.gigabytes_per_s(), 1000.0 / (10 * kMs), 1e-12);
}

TEST(CommSummary, WhatWasReadyBeforeTheAwaitIsHiddenAltogether) {
  CommSummary table;
  table.issued(event(1, "", 8), 0);
  table.ready(event(1, "", 8), 9 * kMs, 4 * kMs, 9 * kMs);
  EXPECT_EQ(table.total().exposed_ns, 0);
  EXPECT_EQ(table.total().in_flight_ns, 4 * kMs);
  EXPECT_EQ(table.hidden_share(), 1);
}

TEST(CommSummary, AnAwaitLongerThanTheFlightHidesNothing) {
  CommSummary table;
  table.issued(event(1, "", 8), 0);
  table.ready(event(1, "", 8), 0, 2 * kMs, 5 * kMs);
  EXPECT_EQ(table.hidden_share(), 0);
}

// On a device that queues its work, what the host did says nothing.
TEST(CommSummary, CountsTheTimesOfStreamsWhereWorkIsQueued) {
  CommSummary table;
  CommEvent queued = event(1, "P->R", 1000);
  queued.queued = true;
  table.issued(queued, 1 * kMs);
  table.ready(queued, 2 * kMs, 2 * kMs, 2 * kMs);
  EXPECT_EQ(table.total().in_flight_ns, 0);
  table.stalled(queued, 27 * kMs, 30 * kMs);
  table.ran(queued, 20 * kMs, 30 * kMs);
  const CommSummary::Row row = table.rows().at(0);
  EXPECT_EQ(row.count, 1);
  EXPECT_EQ(row.in_flight_ns, 10 * kMs);
  EXPECT_EQ(row.exposed_ns, 3 * kMs);
  EXPECT_NEAR(row.hidden(), 0.7, 1e-12);
  // What was issued before the table was an observer, or is told twice.
  CommEvent other = event(2, "P->R", 1000);
  for (const CommEvent& unknown : {other, queued}) {
    table.stalled(unknown, 40 * kMs, 50 * kMs);
    table.ran(unknown, 40 * kMs, 50 * kMs);
  }
  EXPECT_EQ(table.total().in_flight_ns, 10 * kMs);
  EXPECT_EQ(table.total().exposed_ns, 3 * kMs);
}

// As one await of several pieces does: all are in flight, and awaited, at once.
TEST(CommSummary, CountsTimeThatCollectivesShareOnce) {
  CommSummary table;
  for (const std::uint64_t id : {1U, 2U, 3U}) table.issued(event(id, "piece", 8), 10 * kMs);
  table.issued(event(4, "other", 8), 18 * kMs);
  for (const std::uint64_t id : {1U, 2U, 3U}) {
    const std::int64_t done = 14 * kMs + static_cast<std::int64_t>(id) * 2 * kMs;
    table.ready(event(id, "piece", 8), 12 * kMs, done, 20 * kMs);
  }
  table.ready(event(4, "other", 8), 19 * kMs, 23 * kMs, 23 * kMs);
  const auto rows = table.rows();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].label, "piece");
  EXPECT_EQ(rows[0].in_flight_ns, 10 * kMs);
  EXPECT_EQ(rows[0].exposed_ns, 8 * kMs);
  EXPECT_EQ(rows[1].in_flight_ns, 5 * kMs);
  EXPECT_EQ(rows[1].exposed_ns, 4 * kMs);
  EXPECT_EQ(table.total().in_flight_ns, 13 * kMs) << "from 10 to 23";
  EXPECT_EQ(table.total().exposed_ns, 11 * kMs) << "from 12 to 23";
}

// The host may come back late, and be blocked by another one meanwhile.
TEST(CommSummary, HiddenCountsWhatBlockedTheHostWhileDataWereUnderWay) {
  CommSummary table;
  table.issued(event(1, "a", 8), 0);
  table.issued(event(2, "b", 8), 0);
  table.ready(event(1, "a", 8), 6 * kMs, 8 * kMs, 20 * kMs);  // blocked for 2 of 8, then late
  table.ready(event(2, "b", 8), 20 * kMs, 10 * kMs, 20 * kMs);
  const auto rows = table.rows();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].exposed_ns, 14 * kMs);
  EXPECT_NEAR(rows[0].hidden(), 0.75, 1e-12);
  EXPECT_EQ(rows[1].exposed_ns, 0);
  EXPECT_NEAR(rows[1].hidden(), 0.6, 1e-12) << "blocked by the other from 6 to 10";
  EXPECT_NEAR(table.hidden_share(), 0.6, 1e-12);
}

// In any order of their ends, with gaps, one within another, thousands of them.
TEST(CommSummary, TheTimeOfManyIsWhatTheyCover) {
  CommSummary table;
  std::uint32_t state = 1;
  const auto draw = [&](std::int64_t most) {
    state = state * 1664525U + 1013904223U;
    return static_cast<std::int64_t>(state >> 8) % most;
  };
  std::vector<bool> covered(100'000);
  for (std::uint64_t id = 0; id < 3000; ++id) {
    const std::int64_t end = 100 + static_cast<std::int64_t>(id) * 33 + draw(60);
    const std::int64_t begin = end - draw(90);
    table.issued(event(id, "", 8), begin);
    table.ready(event(id, "", 8), end, end, end);
    for (std::int64_t t = begin; t < end; ++t) covered[static_cast<std::size_t>(t)] = true;
  }
  EXPECT_EQ(table.total().in_flight_ns, std::ranges::count(covered, true));
}

// The host awaits hundreds of small ones, and so hides nothing of the large one.
TEST(CommSummary, OneIsInFlightWhileManyAreAwaited) {
  for (const int small : {20, 150, 500}) {
    CommSummary table;
    table.issued(event(1, "large", 8), 0);
    table.issued(event(2, "never awaited", 8), 0);
    std::int64_t now = 0;
    for (int i = 0; i < small; ++i) {
      const CommEvent one = event(static_cast<std::uint64_t>(10 + i), "small", 8);
      now += kMs;  // of which nothing is in flight but the large one, and the host computes
      table.issued(one, now);
      table.ready(one, now, now + kMs, now + kMs);
      now += kMs;
    }
    table.ready(event(1, "large", 8), now, now, now);
    EXPECT_EQ(table.total().in_flight_ns, now) << small;
    EXPECT_NEAR(table.hidden_share(), 0.5, 1e-12) << small;
    const auto rows = table.rows();
    ASSERT_EQ(rows.size(), 3U);
    EXPECT_EQ(rows[0].hidden(), 0) << rows[0].label;
    EXPECT_EQ(rows[1].in_flight_ns + rows[2].in_flight_ns, now);
  }
}

// The host may stand still in several pieces, the last of which ends with the await.
TEST(CommSummary, CountsAllThatTheHostStoodStill) {
  CommSummary table;
  const CommEvent one = event(1, "S(0)->R", 8);
  table.issued(one, 0);
  table.stalled(one, 0, 2 * kMs);
  table.stalled(one, 5 * kMs, 6 * kMs);
  table.ready(one, 9 * kMs, 10 * kMs, 10 * kMs);
  EXPECT_EQ(table.total().exposed_ns, 4 * kMs);
  EXPECT_NEAR(table.hidden_share(), 0.6, 1e-12);
}

TEST(CommSummary, KeepsPurposesApartAndPutsTheMostExposedFirst) {
  CommSummary table;
  table.issued(event(1, "a", 8), 0);
  table.issued(event(2, "b", 8), 0);
  table.ready(event(1, "a", 8), 0, kMs, kMs);
  table.ready(event(2, "b", 8), 0, 2 * kMs, 2 * kMs);
  ASSERT_EQ(table.rows().size(), 2U);
  EXPECT_EQ(table.rows()[0].label, "b");
  EXPECT_EQ(table.total().count, 2);
}

TEST(CommSummary, KnowsTheShareOfGemmAndAttention) {
  CommSummary table;
  table.computed("linear", ComputeClass::Gemm, 0, 5 * kMs);
  table.computed("attention", ComputeClass::Attention, 5 * kMs, 8 * kMs);
  table.computed("add", ComputeClass::Other, 8 * kMs, 9 * kMs);
  EXPECT_NEAR(table.gemm_share(10 * kMs), 0.8, 1e-12);
}

TEST(CommSummary, ResetForgetsFiguresButNotWhatIsInFlight) {
  CommSummary table;
  table.issued(event(1, "x", 8), 0);
  table.reset();
  EXPECT_TRUE(table.rows().empty());
  table.ready(event(1, "x", 8), 1 * kMs, 2 * kMs, 2 * kMs);
  EXPECT_EQ(table.total().in_flight_ns, 2 * kMs);
}

// Blocked time that is known only after a reset belongs to what is counted after it, as its flight.
TEST(CommSummary, HiddenIsAShareAlsoWhenAResetIsBetween) {
  CommSummary table;
  table.issued(event(1, "x", 8), 0);
  table.issued(event(2, "x", 8), 5 * kMs);
  table.ready(event(1, "x", 8), 10 * kMs, 10 * kMs, 10 * kMs);
  table.reset();
  table.ready(event(2, "x", 8), 6 * kMs, 12 * kMs, 12 * kMs);
  EXPECT_EQ(table.total().in_flight_ns, 7 * kMs);
  EXPECT_NEAR(table.hidden_share(), 1.0 / 7, 1e-12);
}

TEST(CommSummary, AResetForgetsNoTimeThatWillCount) {
  CommSummary table;
  table.issued(event(1, "x", 8), 0);
  table.stalled(event(1, "x", 8), 0, 5 * kMs);
  table.reset();
  table.ready(event(1, "x", 8), 5 * kMs, 10 * kMs, 10 * kMs);
  EXPECT_EQ(table.total().in_flight_ns, 10 * kMs);
  EXPECT_EQ(table.total().exposed_ns, 5 * kMs);
  EXPECT_EQ(table.rows().at(0).hidden(), 0);
  EXPECT_EQ(table.hidden_share(), 0);
}

TEST(CommSummary, IgnoresWhatWasIssuedBefore) {
  CommSummary table;
  table.ready(event(1, "x", 8), 0, 5 * kMs, 5 * kMs);
  table.stalled(event(2, "x", 8), 5 * kMs, 6 * kMs);
  EXPECT_EQ(table.total().exposed_ns, 0);
  EXPECT_TRUE(table.rows().empty());
}

TEST(CommSummary, PrintsTheMeanOverRanks) {
  std::vector<CommSummary> tables(2);
  for (CommSummary& table : tables) {
    table.issued(event(1, "P->R", 3'000'000), 0);
    table.ready(event(1, "P->R", 3'000'000), 0, 4 * kMs, 4 * kMs);
  }
  std::ostringstream out;
  print_comm_summary(out, tables);
  EXPECT_NE(out.str().find("P->R"), std::string::npos);
  EXPECT_NE(out.str().find(" 3.000 "), std::string::npos) << out.str();
  EXPECT_NE(out.str().find(" 4.0 "), std::string::npos) << out.str();
  EXPECT_EQ(out.str().find("emulated"), std::string::npos);
}

TEST(CommSummary, SaysThatALinkWasEmulated) {
  std::vector<CommSummary> tables(1);
  CommEvent linked = event(1, "P->R", 8);
  linked.link = "20us,1GB/s";
  tables[0].issued(linked, 0);
  std::ostringstream out;
  print_comm_summary(out, tables);
  EXPECT_TRUE(out.str().starts_with("on an emulated link of 20us,1GB/s:\n")) << out.str();
}

}  // namespace
}  // namespace coshard
