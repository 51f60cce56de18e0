// Waits whose limit is not the world's: in virtual time, in one process and in several.
#include <coshard/runtime/coro/wait_limit.h>

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/launch/simulate.h>
#include "tests/support/ends.h"
#include "tests/support/errors.h"
#include "tests/support/long_awaits.h"

namespace coshard::wait_limit {
namespace {
using namespace std::chrono_literals;
using testing::End;
using testing::end_of;
using testing::error_text;
using testing::issue_barrier;

struct Case {
  std::chrono::nanoseconds busy;                  // of rank 0, before it takes part
  std::optional<std::chrono::nanoseconds> limit;  // that all ranks hold
};

enum class Awaited : bool { Inside, Outside };

Task<void> meet(World& world, std::chrono::nanoseconds busy) {
  if (world.rank() == 0) co_await sleep_for(busy);
  const Work meeting = issue_barrier(world);
  co_await meeting;
}
Task<void> meet_within(World& world, Case one) {
  std::optional<WaitLimit> limit;
  if (one.limit) limit.emplace(*one.limit);
  Task<void> all = meet(world, one.busy);
  co_await std::move(all);
}

// The options of a world whose waits are limited to a minute.
WorldOptions of_a_minute(int ranks) {
  WorldOptions options;
  options.ranks = ranks;
  options.timeout = 60s;
  return options;
}
End simulated(const Program& program, int processes, WorldOptions options = of_a_minute(4)) {
  try {
    SimOptions sim;
    sim.processes = processes;
    simulate(options, program, 3, sim);
  } catch (...) {
    return end_of(std::current_exception());
  }
  return {};
}

TEST(WaitLimit, ReplacesTheWorldsTimeoutInOneProcessAndInSeveral) {
  const std::pair<Case, bool> cases[] = {{{5min, std::nullopt}, true}, {{5min, 10min}, false},
                                         {{20min, 10min}, true},       {{20min, 0s}, false},
                                         {{30s, std::nullopt}, false}, {{30s, 10s}, true}};
  for (const int processes : {1, 2})
    for (const auto& [one, fails] : cases) {
      const Case now = one;
      const End end = simulated([now](World& w) { return meet_within(w, now); }, processes);
      EXPECT_EQ(end.failed, fails) << end << ", busy for " << now.busy.count() << " ns";
      const bool told =
          end.is(ErrorKind::Timeout) && end.names("WaitLimit") && end.names("--timeout");
      EXPECT_EQ(told, fails) << end;
    }
}

TEST(WaitLimit, LimitsWaitsInAWorldWithoutATimeout) {
  WorldOptions options = of_a_minute(2);
  options.timeout = 0ms;
  const Case one{5min, 1min};
  const End end = simulated([one](World& w) { return meet_within(w, one); }, 1, options);
  EXPECT_TRUE(end.is(ErrorKind::Timeout)) << end;
}

// What is issued within and awaited outside keeps the limit; so does the reverse.
Task<void> issue_and_await(World& world, Awaited where) {
  if (world.rank() == 0) co_await sleep_for(5min);
  Work meeting;
  {
    std::optional<WaitLimit> limit;
    if (where == Awaited::Outside) limit.emplace(10min);
    meeting = issue_barrier(world);
  }
  std::optional<WaitLimit> limit;
  if (where == Awaited::Inside) limit.emplace(10min);
  co_await meeting;
}
TEST(WaitLimit, CountsWhereTheCollectiveIsIssuedAndWhereItIsAwaited) {
  for (const Awaited where : {Awaited::Inside, Awaited::Outside}) {
    const End end = simulated([where](World& w) { return issue_and_await(w, where); }, 1);
    EXPECT_FALSE(end.failed) << end;
  }
}

Task<void> waits_in_place(World& world) {
  const WaitLimit limit(10min);
  if (world.rank() == 0) co_await sleep_for(5min);
  const Work meeting = issue_barrier(world);
  meeting.wait();
}
TEST(WaitLimit, HoldsForWaitsInPlace) {
  const End end = simulated(waits_in_place, 1);
  EXPECT_FALSE(end.failed) << end;
}

Task<std::optional<std::int64_t>> told() { co_return WaitLimit::here(); }
Task<void> nests(World&) {
  EXPECT_EQ(WaitLimit::here(), std::nullopt);
  {
    const WaitLimit outer(2s);
    co_await yield();
    EXPECT_EQ(WaitLimit::here(), 2'000'000'000);
    {
      const WaitLimit inner(0s);
      EXPECT_EQ(WaitLimit::here(), 0);
    }
    std::vector<Task<std::optional<std::int64_t>>> children;
    children.push_back(told());
    auto all = when_all(std::move(children));
    const auto limits = co_await std::move(all);
    EXPECT_EQ(limits.at(0), 2'000'000'000);
  }
  EXPECT_EQ(WaitLimit::here(), std::nullopt);
}
TEST(WaitLimit, NestsAndIsInheritedByBranches) {
  const End end = simulated(nests, 1);
  EXPECT_FALSE(end.failed) << end;
}

// Two branches wait for rank 0: the second one's limit counts once the first is over.
Task<void> waits_within(World& world, std::chrono::nanoseconds limit) {
  const WaitLimit wait_limit(limit);
  const Work meeting = issue_barrier(world);
  co_await meeting;
}
Task<void> waits_behind_another(World& world, std::chrono::nanoseconds first,
                                std::chrono::nanoseconds second) {
  if (world.rank() == 0) co_await sleep_for(5min);
  Task<void> one = waits_within(world, first), two = waits_within(world, second);
  Task<void> both = when_all(std::move(one), std::move(two));
  co_await std::move(both);
}
TEST(WaitLimit, CountsFromWhenItsWaitIsTheFirstOfItsRank) {
  const End behind = simulated([](World& w) { return waits_behind_another(w, 10min, 1s); }, 1);
  EXPECT_FALSE(behind.failed) << behind;
  const End first = simulated([](World& w) { return waits_behind_another(w, 1s, 10min); }, 1);
  EXPECT_TRUE(first.is(ErrorKind::Timeout)) << first;
}

TEST(WaitLimit, IsNotNegative) {
  const std::string text = error_text(ErrorKind::BadInput, [] { const WaitLimit limit(-5ns); });
  EXPECT_NE(text.find("-5"), std::string::npos) << text;
}

}  // namespace
}  // namespace coshard::wait_limit
