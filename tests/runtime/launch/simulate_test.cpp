// One program, simulated: time, standstills, deaths, replays.
#include <coshard/runtime/launch/simulate.h>

#include <gtest/gtest.h>

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <coroutine>
#include <string>
#include <thread>
#include <vector>

#include <coshard/runtime/coro/asio.h>
#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/error.h>
#include "tests/runtime/simulation/run_program.h"
#include "tests/support/foreign_awaitables.h"

namespace coshard::testing {
namespace {
using namespace std::chrono_literals;
using testing::End;
using testing::Held;
using testing::Never;

WorldOptions ranks(int count, std::chrono::milliseconds timeout = 60s) {
  WorldOptions options;
  options.ranks = count;
  options.timeout = timeout;
  return options;
}

End end_of(const WorldOptions& options, const Program& program, const SimOptions& sim = {}) {
  try {
    simulate(options, program, 1, sim);
    return {};
  } catch (...) {
    return testing::end_of(std::current_exception());
  }
}

Collective sum_of(std::vector<float>& data) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.extent = static_cast<std::int64_t>(data.size());
  c.send = c.recv = data.data();
  return c;
}

Task<void> sum_and_sleep(World& world) {
  const std::int64_t begin = world.executor().now();
  co_await sleep_for(24h);
  EXPECT_GE(world.executor().now() - begin, std::chrono::nanoseconds(24h).count());
  std::vector<float> data(100'000, static_cast<float>(world.rank()));
  const Work work = world.communicator()->issue(sum_of(data));
  co_await work;
  EXPECT_EQ(data.back(), 6);
  const Work again = world.communicator()->issue(sum_of(data));
  again.wait();
  EXPECT_EQ(data.back(), 24);
}

TEST(Simulate, ADayPassesAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t seed = 0; seed < 10; ++seed) simulate(ranks(4), sum_and_sleep, seed);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  EXPECT_EQ(World::current(), nullptr);
}

Task<void> asks_for_asio(World& world) {
  boost::asio::steady_timer timer(world.executor().io_context(), 1ms);
  co_await timer.async_wait(use_task);
}

TEST(Simulate, AsiosTimersAreRefused) {
  const End end = end_of(ranks(2), asks_for_asio);
  EXPECT_TRUE(end.is(ErrorKind::Unsupported)) << end;
  EXPECT_TRUE(end.names("sleep_for")) << end;
}

Task<void> one_is_missing(World& world) {
  if (world.rank() == 1) {
    Collective recv;
    recv.kind = CollectiveKind::Recv;
    recv.root = 0;
    const Work work = world.communicator()->issue(recv);
    co_await work;
  } else {
    std::vector<float> data(4);
    const Work work = world.communicator()->issue(sum_of(data));
    if (world.rank() == 0) co_await work;
    work.wait();
  }
}

TEST(Simulate, AStandstillNamesWhatEachRankWaitsFor) {
  const End end = end_of(ranks(3, 0ms), one_is_missing);
  EXPECT_TRUE(end.is(ErrorKind::CommFailed)) << end;
  EXPECT_TRUE(end.names("rank 0 waits for all_reduce #0 on world[3]")) << end;
  EXPECT_TRUE(end.names("rank 1 waits for recv #0 on world[3]")) << end;
  EXPECT_TRUE(end.names("rank 2 waits in place for all_reduce #0 on world[3]")) << end;
}

Task<void> one_comes_late(World& world) {
  std::vector<float> data(4);
  const Work first = world.communicator()->issue(sum_of(data));
  co_await first;
  if (world.rank() == 1) co_await sleep_for(2h);
  const Work second = world.communicator()->issue(sum_of(data));
  co_await second;
}

TEST(Simulate, ATimeoutCountsItsOwnTime) {
  const End end = end_of(ranks(2, 60s), one_comes_late);
  EXPECT_TRUE(end.is(ErrorKind::Timeout)) << end;
  EXPECT_TRUE(end.names("missing: 1 (last issued #0 all_reduce on world[2] 60.0 s ago)")) << end;
}

Task<void> turns_for_ever(World&) {
  for (;;) co_await yield();
}
Task<void> sleeps_for_ever(World&) {
  for (;;) co_await sleep_for(100h);
}

TEST(Simulate, WhatDoesNotEndIsAnError) {
  SimOptions sim;
  sim.most_turns = 1000;
  for (const Program& program : {Program(turns_for_ever), Program(sleeps_for_ever)}) {
    const End end = end_of(ranks(2), program, sim);
    EXPECT_TRUE(end.is(ErrorKind::Timeout)) << end;
    EXPECT_TRUE(end.names("rank 1")) << end;
  }
}

Task<void> turns_until(std::int64_t& value) {
  while (value == 0) co_await yield();
}
Task<void> set_after(std::int64_t& value) {
  co_await sleep_for(1ms);
  value = 1;
}
Task<void> turns_beside_a_sleep(World&) {
  std::int64_t value = 0;
  Task<void> turning = turns_until(value);
  Task<void> setting = set_after(value);
  Task<void> both = when_all(std::move(turning), std::move(setting));
  co_await std::move(both);
}

TEST(Simulate, TimePassesForWhoOnlyTakesTurns) { simulate(ranks(2), turns_beside_a_sleep, 7); }

Task<void> three_sums(World& world, int& done) {
  std::vector<float> data(4);
  for (int i = 0; i < 3; ++i) {
    const Work work = world.communicator()->issue(sum_of(data));
    co_await work;
    ++done;
  }
}

TEST(Simulate, AKilledRankIsTheCauseThatAllSee) {
  for (int after = 0; after <= 3; ++after) {
    std::vector<int> done(3);
    std::vector<End> ends(3);
    SimOptions sim;
    sim.deaths.push_back({.rank = 2, .after = after});
    const auto program = [&](World& world) {
      const auto r = static_cast<std::size_t>(world.rank());
      return testing::note_end(three_sums(world, done[r]), ends[r]);
    };
    const End end = end_of(ranks(3), program, sim);
    EXPECT_TRUE(end.is(ErrorKind::CommFailed)) << end;
    EXPECT_TRUE(end.names(str_cat("rank 2 was killed after it had issued ", after))) << end;
    if (after == 0) continue;
    EXPECT_LT(done[2], after + 1);
    for (const End& rank : ends)
      if (rank.failed) {
        EXPECT_TRUE(rank.names("rank 2 was killed")) << rank;
      }
  }
  const End end = end_of(ranks(3), sum_and_sleep, {.deaths = {{.rank = 5, .after = 0}}});
  EXPECT_TRUE(end.is(ErrorKind::BadInput)) << end;
}

TEST(Simulate, TheSameSeedGivesTheSameRun) {
  bool differ = false;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const RandomProgram program = random_program(seed);
    std::vector<std::string> one, again, other;
    run_program(program, seed, std::nullopt, &one);
    run_program(program, seed, std::nullopt, &again);
    run_program(program, seed + 1000, std::nullopt, &other);
    EXPECT_EQ(one, again) << "seed " << seed;
    differ |= one != other;
  }
  EXPECT_TRUE(differ);
}

// --- awaitables of another library ---

Task<void> rank_1_awaits_never(World& world) {
  if (world.rank() == 1) {
    Never never;
    co_await never;
  }
  const Work work = world.communicator()->issue(Collective());
  co_await work;
}
TEST(Simulate, WhatNobodyResumesIsAnErrorThatNamesRankAndPlace) {
  for (const int processes : {1, 2}) {
    SimOptions sim;
    sim.processes = processes;
    WorldOptions options = ranks(2);
    std::vector<Failure> failures;
    options.on_failure = [&](const Failure& failure) { failures.push_back(failure); };
    const End end = end_of(options, rank_1_awaits_never, sim);
    EXPECT_TRUE(end.is(ErrorKind::Timeout)) << end;
    ASSERT_FALSE(failures.empty());
    const End without = end_of(ranks(2, 0s), rank_1_awaits_never, sim);
    EXPECT_TRUE(without.is(ErrorKind::CommFailed)) << without;
    EXPECT_TRUE(without.names("Never in branch main")) << without;
  }
  const End alone = end_of(ranks(1), [](World&) -> Task<void> {
    Never never;
    co_await never;
  });
  EXPECT_TRUE(alone.is(ErrorKind::Timeout)) << alone;
  EXPECT_TRUE(alone.names("Never in branch main of rank 0")) << alone;
  EXPECT_TRUE(alone.names("60 s")) << alone;
}

Task<void> is_kept(std::coroutine_handle<>& given) {
  Held kept{given};
  co_await kept;
}
Task<void> resumes(std::coroutine_handle<>& given) {
  co_await sleep_for(30s);
  given.resume();
}
Task<void> one_branch_resumes_the_other(World&) {
  std::coroutine_handle<> given;
  Task<void> waits = is_kept(given), wakes = resumes(given);
  Task<void> both = when_all(std::move(waits), std::move(wakes));
  co_await std::move(both);
}
TEST(Simulate, WhatTheProgramResumesGoesOn) {
  const End end = end_of(ranks(2), one_branch_resumes_the_other);
  EXPECT_FALSE(end.failed) << end;
}

// Another thread has resumed it by the time it suspends.
struct Elsewhere {
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> self) const {
    std::thread([self] { self.resume(); }).join();
  }
  void await_resume() const {}
};
TEST(Simulate, AnotherThreadThatResumesIsRefused) {
  const End end = end_of(ranks(2), [](World&) -> Task<void> {
    Elsewhere elsewhere;
    co_await elsewhere;
  });
  EXPECT_TRUE(end.is(ErrorKind::Unsupported)) << end;
  EXPECT_TRUE(end.names("Elsewhere")) << end;
}

}  // namespace
}  // namespace coshard::testing
