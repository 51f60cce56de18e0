// When a failure is told, to whom, and what is no failure; in virtual time.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/launch/simulate.h>
#include "tests/support/ends.h"
#include "tests/support/errors.h"
#include "tests/support/virtual_ranks.h"

namespace coshard::testing {
namespace {
using namespace std::chrono_literals;
using testing::Boom;
using testing::compute_for;
using testing::End;
using testing::quick_options;

// What the hooks of a run were called with, and when, in virtual time since its begin.
struct ToldOfRuns {
  std::vector<Failure> failures;
  std::vector<std::chrono::nanoseconds> after;
  std::vector<StillRunning> running;

  WorldOptions options(int ranks) {
    WorldOptions options = quick_options(ranks);
    options.on_failure = [this](const Failure& failure) {
      failures.push_back(failure);
      after.push_back(std::chrono::nanoseconds(testing::virtual_now()) - kBegin);
    };
    options.on_still_running = [this](const StillRunning& news) { running.push_back(news); };
    return options;
  }

 private:
  static constexpr auto kBegin = 1s;  // see FiberPolicy
};

constexpr auto kATurnOrTwo = 1ms;

void simulate_once(const WorldOptions& options, const Program& program) {
  simulate(options, program, 0);
}

Task<void> throws_while_others_compute() {
  co_await sleep_for(kATurnOrTwo);
  throw Boom();
}
Task<void> one_throws_others_compute(World& world, int& computed) {
  if (world.rank() == 1) {
    Task<void> throws = throws_while_others_compute();
    co_await std::move(throws);
  }
  compute_for(400ms);
  ++computed;
}

TEST(OnFailure, IsCalledOnceAndWhileOtherRanksStillCompute) {
  ToldOfRuns told;
  int computed = 0;
  EXPECT_THROW(
      simulate_once(told.options(3),
                    [&](World& world) { return one_throws_others_compute(world, computed); }),
      Boom);
  EXPECT_EQ(computed, 2);
  ASSERT_EQ(told.failures.size(), 1U);
  EXPECT_LT(told.after[0], 2 * kATurnOrTwo);
  EXPECT_EQ(told.failures[0].rank, 1);
  EXPECT_EQ(told.failures[0].text, "boom");
  EXPECT_EQ(told.failures[0].line(), "rank 1: boom");
}

Task<void> all_throw(World&) {
  throw Boom();
  co_return;
}

TEST(OnFailure, IsCalledOnceWhereAllRanksFail) {
  ToldOfRuns told;
  EXPECT_THROW(simulate_once(told.options(4), all_throw), Boom);
  EXPECT_EQ(told.failures.size(), 1U);
}

TEST(OnFailure, WhatItThrowsIsDropped) {
  WorldOptions options = quick_options(2);
  options.on_failure = [](const Failure&) { throw std::logic_error("of the hook's own"); };
  EXPECT_THROW(run_ranks(options, all_throw), Boom);
}

Task<void> throws_in_a_module(World& world) {
  try {
    throw Boom();
  } catch (...) {
    world.module_left("layers.0.mlp", std::current_exception());
    world.module_left("layers.0", std::current_exception());
    throw;
  }
  co_return;
}

TEST(OnFailure, NamesTheInnermostModule) {
  ToldOfRuns told;
  EXPECT_THROW(simulate_once(told.options(1), throws_in_a_module), Boom);
  ASSERT_EQ(told.failures.size(), 1U);
  EXPECT_EQ(told.failures[0].line(), "rank 0, layers.0.mlp: boom");
}

// --- echoes ---

Task<void> one_poisons(World& world) {
  if (world.rank() == 0) world.communicator()->poison("the disk is full");
  const Work work = world.communicator()->issue(Collective());
  co_await work;
}

TEST(OnFailure, WhereNobodyFailedOfItsOwnTheFirstToHearOfItIsTold) {
  ToldOfRuns told;
  EXPECT_THROW(simulate_once(told.options(2), one_poisons), Error);
  ASSERT_EQ(told.failures.size(), 1U);
  EXPECT_NE(told.failures[0].text.find("the disk is full"), std::string::npos)
      << told.failures[0].text;
}

// --- what is no failure ---

Task<void> one_is_cancelled(World& world, std::atomic<int>& ended) {
  if (world.rank() == 1) fail(ErrorKind::Cancelled, "a stop was requested");
  Task<void> nap = sleep_for(50ms);
  co_await std::move(nap);
  ++ended;
}

TEST(OnFailure, IsNotCalledForACancellationWhichEndsNobodyElse) {
  ToldOfRuns told;
  std::atomic<int> ended{0};
  End end;
  try {
    simulate_once(told.options(3), [&](World& world) { return one_is_cancelled(world, ended); });
  } catch (...) {
    end = testing::end_of(std::current_exception());
  }
  EXPECT_TRUE(end.is(ErrorKind::Cancelled)) << end;
  EXPECT_TRUE(told.failures.empty());
  EXPECT_EQ(ended, 2);
}

// --- siblings that do not end ---

Task<void> throws_boom() {
  throw Boom();
  co_return;
}
// Its first turn comes after it was cancelled, and it awaits nothing that would tell it.
Task<void> computes(std::chrono::milliseconds duration) {
  compute_for(duration);
  co_return;
}
Task<void> throw_beside_compute(std::chrono::milliseconds duration) {
  Task<void> failing = throws_boom(), busy = computes(duration);
  Task<void> both = when_all(std::move(failing), std::move(busy));
  co_await std::move(both);
}
Task<void> wait_for_rank_0(World& world, std::chrono::milliseconds duration) {
  if (world.rank() == 0) {
    Task<void> both = throw_beside_compute(duration);
    co_await std::move(both);
  }
  const Work work = world.communicator()->issue(Collective());
  co_await work;
}

TEST(OnFailure, ASiblingThatDoesNotEndKeepsTheFailureForASecond) {
  ToldOfRuns told;
  WorldOptions options = told.options(2);
  options.timeout = 10s;
  EXPECT_THROW(simulate_once(options, [](World& world) { return wait_for_rank_0(world, 2000ms); }),
               Boom);
  ASSERT_EQ(told.failures.size(), 1U);
  EXPECT_EQ(told.failures[0].line(), "rank 0: boom");
  EXPECT_GE(told.after[0], 1s);
  EXPECT_LT(told.after[0], 1s + kATurnOrTwo);
}

TEST(OnFailure, APeersTimeoutIsNotTakenForTheFailureThatItComesOf) {
  ToldOfRuns told;
  WorldOptions options = told.options(2);
  options.timeout = 300ms;
  EXPECT_THROW(simulate_once(options, [](World& world) { return wait_for_rank_0(world, 800ms); }),
               Boom);
  ASSERT_EQ(told.failures.size(), 1U);
  EXPECT_EQ(told.failures[0].line(), "rank 0: boom");
  EXPECT_GE(told.after[0], 300ms);
  EXPECT_LT(told.after[0], 800ms);
}

Task<void> catch_too_late(World&) {
  try {
    Task<void> both = throw_beside_compute(1300ms);
    co_await std::move(both);
  } catch (const Boom&) {
  }
}

TEST(OnFailure, WhatIsCaughtBeforeASecondHasPassedIsNone) {
  ToldOfRuns told;
  simulate_once(told.options(2), [](World&) -> Task<void> {
    try {
      Task<void> both = throw_beside_compute(100ms);
      co_await std::move(both);
    } catch (const Boom&) {
    }
  });
  EXPECT_TRUE(told.failures.empty());
  EXPECT_THROW(simulate_once(told.options(1), catch_too_late), Boom) << "it was told: too late";
}

// --- who has not ended ---

Task<void> one_is_stuck(World& world) {
  if (world.rank() == 0) {
    Task<void> throws = throws_while_others_compute();
    co_await std::move(throws);
  }
  if (world.rank() == 2) compute_for(3500ms);
  co_return;
}

TEST(StillRunningRanks, AreNamedAfterASecondEveryTwoSecondsAndWhenTheGraceIsOver) {
  ToldOfRuns told;
  WorldOptions options = told.options(3);
  options.grace = 2000ms;
  EXPECT_THROW(simulate_once(options, one_is_stuck), Boom);
  ASSERT_EQ(told.running.size(), 2U);
  for (const StillRunning& news : told.running) {
    EXPECT_EQ(news.ranks, std::vector<int>{2});
    EXPECT_EQ(news.text, "rank 2 (has issued no collective yet)");
  }
  EXPECT_EQ(told.running[0].since, 1000ms);
  EXPECT_FALSE(told.running[0].out_of_grace);
  EXPECT_EQ(told.running[1].since, 2000ms);
  EXPECT_TRUE(told.running[1].out_of_grace);
}

TEST(RunRanks, RefusesOptionsThatMakeNoSense) {
  WorldOptions no_threads, no_time, no_grace;
  no_threads.threads = -1;
  no_time.timeout = -1ms;
  no_grace.grace = -5ms;
  for (const WorldOptions& options : {no_threads, no_time, no_grace}) {
    try {
      run_ranks(options, all_throw);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      EXPECT_NE(std::string(error.what()).find(" must be at least 0, got -"), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace coshard::testing
