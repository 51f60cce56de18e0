// Awaitables of somebody else's in a when_all whose other branch fails: they are waited for, within
// the world's timeout. In virtual time.
#include <gtest/gtest.h>

#include <chrono>
#include <coroutine>
#include <functional>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>

#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/wait_limit.h>
#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/launch/simulate.h>
#include "tests/support/ends.h"
#include "tests/support/foreign_awaitables.h"
#include "tests/support/long_awaits.h"

namespace coshard::foreign_siblings {
namespace {
using namespace std::chrono_literals;
using testing::End;
using testing::end_of;
using testing::Held;
using testing::keep_end;
using testing::meet;
using testing::Stoppable;
using Time = std::chrono::nanoseconds;

WorldOptions of_a_minute(int ranks) {
  WorldOptions options;
  options.ranks = ranks;
  options.timeout = 60s;
  return options;
}
End simulated(int ranks, const Program& program) {
  try {
    simulate(of_a_minute(ranks), program, 1);
  } catch (...) {
    return end_of(std::current_exception());
  }
  return {};
}
Time now() { return Time(Executor::current()->now()); }

Task<void> held(std::coroutine_handle<>& given) {
  Held held{given};
  co_await held;
}
Task<void> fails_soon() {
  co_await sleep_for(100ms);
  throw std::runtime_error("boom");
}
Task<void> fail_beside(std::coroutine_handle<>& given) {
  Task<void> waits = held(given), fails = fails_soon();
  Task<void> both = when_all(std::move(waits), std::move(fails));
  co_await std::move(both);
}
Task<void> resume_after(std::coroutine_handle<>& given, Time nap) {
  co_await sleep_for(nap);
  given.resume();
}

// The error is caught once the other branch has ended, however long that takes within the timeout;
// peers wait for the rank as for any that is busy.
Task<void> catches_after(World& world, Time nap) {
  if (world.rank() == 0) {
    std::coroutine_handle<> given;
    End caught;
    Task<void> failing = fail_beside(given);
    Task<void> kept = keep_end(std::move(failing), caught), wakes = resume_after(given, nap);
    Task<void> both = when_all(std::move(kept), std::move(wakes));
    const Time begin = now();
    co_await std::move(both);
    EXPECT_EQ(caught.text, "boom");
    EXPECT_GE(now() - begin, nap);
  }
  Task<void> meeting = meet(world);
  co_await std::move(meeting);
}
TEST(ForeignSiblings, TheFailureIsCaughtWhenTheOtherBranchHasEnded) {
  for (const int ranks : {1, 2})
    for (const Time nap : {Time(4s), Time(40s)}) {
      const End end = simulated(ranks, [nap](World& world) { return catches_after(world, nap); });
      EXPECT_FALSE(end.failed) << end;
    }
}

Task<void> fails_for_ever(World& world) {
  if (world.rank() == 0) {
    std::coroutine_handle<> given;
    Task<void> failing = fail_beside(given);
    co_await std::move(failing);
  }
  const WaitLimit longer(600s);
  Task<void> meeting = meet(world);
  co_await std::move(meeting);
}
TEST(ForeignSiblings, AfterTheTimeoutTheErrorNamesTheFailureAndTheBranch) {
  for (const int ranks : {1, 2}) {
    const End end = simulated(ranks, fails_for_ever);
    EXPECT_TRUE(end.is(ErrorKind::Timeout)) << end;
    for (const char* named : {"boom", "Held", "branch 0", "rank 0", "60 s"})
      EXPECT_TRUE(end.names(named)) << named << ": " << end;
  }
}
// A peer that stands in a collective meanwhile times out first; the failure is the cause.
Task<void> fails_while_a_peer_waits(World& world) {
  if (world.rank() == 0) {
    co_await sleep_for(10s);
    std::coroutine_handle<> given;
    Task<void> failing = fail_beside(given);
    co_await std::move(failing);
  }
  Task<void> meeting = meet(world);
  co_await std::move(meeting);
}
TEST(ForeignSiblings, APeersTimeoutIsNotTakenForTheFailureThatItComesOf) {
  const End end = simulated(2, fails_while_a_peer_waits);
  EXPECT_EQ(end.text, "boom");
}

// Other branches keep the rank awake.
Task<void> serves() {
  for (;;) co_await sleep_for(1s);
}
Task<void> fails_beside_a_server(World&) {
  std::coroutine_handle<> given;
  Task<void> failing = fail_beside(given), server = serves();
  Task<void> both = when_all(std::move(failing), std::move(server));
  co_await std::move(both);
}
TEST(ForeignSiblings, ARankThatOtherBranchesKeepAwakeIsEndedToo) {
  const End end = simulated(1, fails_beside_a_server);
  EXPECT_TRUE(end.is(ErrorKind::Timeout)) << end;
  for (const char* named : {"boom", "branch 0.0", "61 s"})
    EXPECT_TRUE(end.names(named)) << named << ": " << end;
}

// The WaitLimit of the branch counts.
Task<void> held_within(std::coroutine_handle<>& given, Time limit) {
  const WaitLimit longer(limit);
  Task<void> waits = held(given);
  co_await std::move(waits);
}
Task<void> waits_longer(World&) {
  std::coroutine_handle<> given;
  End caught;
  Task<void> waits = held_within(given, 600s), fails = fails_soon();
  Task<void> failing = when_all(std::move(waits), std::move(fails));
  Task<void> kept = keep_end(std::move(failing), caught), wakes = resume_after(given, 300s);
  Task<void> both = when_all(std::move(kept), std::move(wakes));
  co_await std::move(both);
  EXPECT_EQ(caught.text, "boom");
}
TEST(ForeignSiblings, AWaitLimitOfTheBranchCounts) {
  const End end = simulated(1, waits_longer);
  EXPECT_FALSE(end.failed) << end;
}

// A deadline ends them although their branch was cancelled before, from outside and from inside.
Task<void> bounded(Time limit, std::function<Task<void>(std::coroutine_handle<>&)> what, End& end) {
  std::coroutine_handle<> given;
  const auto work = [&](std::stop_token) { return what(given); };
  Task<void> in_time = with_deadline(limit, "both", work);
  Task<void> kept = keep_end(std::move(in_time), end);
  co_await std::move(kept);
}
Task<void> within_a_deadline(World& world) {
  End end;
  const Time begin = now();
  Task<void> ends = bounded(1s, fail_beside, end);
  co_await std::move(ends);
  EXPECT_LT(now() - begin, Time(2s));
  EXPECT_TRUE(end.is(ErrorKind::Timeout)) << end;
  EXPECT_TRUE(end.names("boom")) << end;
  Task<void> meeting = meet(world);
  co_await std::move(meeting);
}
Task<void> around_a_deadline(World& world) {
  End inner, caught;
  const Time begin = now();
  Task<void> waits = bounded(1s, held, inner), fails = fails_soon();
  Task<void> both = when_all(std::move(waits), std::move(fails));
  Task<void> kept = keep_end(std::move(both), caught);
  co_await std::move(kept);
  EXPECT_LT(now() - begin, Time(2s));
  EXPECT_TRUE(inner.is(ErrorKind::Timeout)) << inner;
  EXPECT_EQ(caught.text, "boom");
  Task<void> meeting = meet(world);
  co_await std::move(meeting);
}
TEST(ForeignSiblings, ADeadlineEndsThemAfterAnotherBranchHasFailed) {
  const End within = simulated(2, within_a_deadline);
  EXPECT_FALSE(within.failed) << within;
  const End around = simulated(2, around_a_deadline);
  EXPECT_FALSE(around.failed) << around;
}

// One that takes a stop token is told at once.
Task<void> stoppable() {
  std::optional<std::stop_callback<std::function<void()>>> callback;
  Stoppable stoppable{callback};
  co_await stoppable;
}
Task<void> fails_beside_a_stoppable(World&) {
  End caught;
  const Time begin = now();
  Task<void> waits = stoppable(), fails = fails_soon();
  Task<void> both = when_all(std::move(waits), std::move(fails));
  Task<void> kept = keep_end(std::move(both), caught);
  co_await std::move(kept);
  EXPECT_EQ(caught.text, "boom");
  EXPECT_LT(now() - begin, Time(200ms));
}
TEST(ForeignSiblings, OneThatTakesAStopTokenIsToldAtOnce) {
  const End end = simulated(1, fails_beside_a_stoppable);
  EXPECT_FALSE(end.failed) << end;
}

}  // namespace
}  // namespace coshard::foreign_siblings
