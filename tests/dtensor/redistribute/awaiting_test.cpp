// Awaiting suspends a branch and never blocks its rank: siblings, timers and signals go on.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <string>

#include <coshard/runtime/coro/asio.h>
#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/when_all.h>
#include "tests/dtensor/redistribute/sums.h"
#include "tests/support/ends.h"

namespace coshard::awaiting {
namespace {
using namespace std::chrono_literals;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using testing::await_sum;
using testing::be_busy;
using testing::End;
using testing::ends_of;
using testing::keep_end;
using testing::note_end;
using testing::one_mesh;
using testing::other_mesh;
using testing::quick_options;
using testing::term;

constexpr milliseconds kLate = 800ms;
constexpr milliseconds kSoon = 250ms;  // 150 ms, and what a busy machine adds

void expect_all_well(const std::vector<End>& ends) {
  for (const End& end : ends) EXPECT_FALSE(end.failed) << end;
}
DeviceMesh all_of(World& world) { return init_device_mesh(world, {world.size()}, {"all"}); }

// --- no deadlock ---

Task<void> yields_then_sum(World& world, DeviceMesh mesh, int turns, double& sum) {
  for (int i = 0; i < turns; ++i) co_await yield();
  Task<void> awaited = await_sum(world, mesh, 1, sum);
  co_await std::move(awaited);
}
Task<void> sleep_then_sum(World& world, DeviceMesh mesh, milliseconds nap, double& sum) {
  if (nap > 0ms) co_await sleep_for(nap);
  Task<void> awaited = await_sum(world, mesh, 1, sum);
  co_await std::move(awaited);
}
Task<void> other_numbers_of_yields(World& world) {
  double one = 0, other = 0;
  const bool first = world.rank() == 0;
  Task<void> a = yields_then_sum(world, one_mesh(world), first ? 0 : 3, one);
  Task<void> b = yields_then_sum(world, other_mesh(world), first ? 3 : 0, other);
  Task<void> both = when_all(std::move(a), std::move(b));
  co_await std::move(both);
  EXPECT_EQ(one, 2);
  EXPECT_EQ(other, 2);
}
Task<void> other_sleeps(World& world) {
  double one = 0, other = 0;
  const bool first = world.rank() == 0;
  Task<void> a = sleep_then_sum(world, one_mesh(world), first ? 0ms : 10ms, one);
  Task<void> b = sleep_then_sum(world, other_mesh(world), first ? 10ms : 0ms, other);
  Task<void> both = when_all(std::move(a), std::move(b));
  co_await std::move(both);
  EXPECT_EQ(one, 2);
  EXPECT_EQ(other, 2);
}

TEST(Awaiting, BranchesThatYieldDifferentlyOnTwoMeshesDoNotDeadlock) {
  expect_all_well(ends_of(quick_options(2), other_numbers_of_yields));
}
TEST(Awaiting, BranchesThatSleepDifferentlyOnTwoMeshesDoNotDeadlock) {
  expect_all_well(ends_of(quick_options(2), other_sleeps));
}

// --- time and signals ---

Task<void> tick(int count, Clock::duration& worst) {
  auto last = Clock::now();
  for (int i = 0; i < count; ++i) {
    co_await sleep_for(10ms);
    worst = std::max(worst, Clock::now() - last);
    last = Clock::now();
  }
}
Task<void> tick_beside_a_late_peer(World& world, Clock::duration& worst) {
  const DeviceMesh all = all_of(world);
  if (world.rank() == 1) be_busy(kLate);
  double sum = 0;
  Clock::duration gap{};
  Task<void> ticker = tick(world.rank() == 0 ? 60 : 1, gap);
  Task<void> awaited = await_sum(world, all, 1, sum);
  Task<void> both = when_all(std::move(awaited), std::move(ticker));
  co_await std::move(both);
  EXPECT_EQ(sum, 2);
  if (world.rank() == 0) worst = gap;
}

TEST(Awaiting, ATickerGoesOnWhileACollectiveWaitsForALatePeer) {
  Clock::duration worst{};
  expect_all_well(ends_of(quick_options(2),
                          [&](World& world) { return tick_beside_a_late_peer(world, worst); }));
  EXPECT_LT(worst, kSoon);
}

struct Signalled {
  std::atomic<bool> listening{false};
  Clock::time_point raised, handled;
};
Task<void> handle_signal(World& world, Signalled& seen) {
  if (world.rank() != 0) co_return;
  boost::asio::signal_set signals(world.executor().io_context(), SIGUSR1);
  Task<int> wait = signals.async_wait(use_task);
  seen.listening = true;
  co_await std::move(wait);
  seen.handled = Clock::now();
}
Task<void> signal_beside_a_late_peer(World& world, Signalled& seen) {
  const DeviceMesh all = all_of(world);
  if (world.rank() == 1) {
    while (!seen.listening) be_busy(1ms);
    be_busy(100ms);
    seen.raised = Clock::now();
    ::kill(::getpid(), SIGUSR1);
    be_busy(kLate);
  }
  double sum = 0;
  Task<void> awaited = await_sum(world, all, 1, sum), handler = handle_signal(world, seen);
  Task<void> both = when_all(std::move(awaited), std::move(handler));
  co_await std::move(both);
}

TEST(Awaiting, ASignalIsHandledWhileACollectiveWaitsForALatePeer) {
  Signalled seen;
  expect_all_well(ends_of(quick_options(2),
                          [&](World& world) { return signal_beside_a_late_peer(world, seen); }));
  EXPECT_LT(seen.handled - seen.raised, kSoon);
}

// --- deadlines ---

// One await under a deadline of 100 ms: how it ended, and when.
struct Bounded {
  End end;
  Clock::duration took{};
};
Task<void> bounded_sum(World& world, DeviceMesh mesh, Bounded& bounded) {
  double sum = 0;
  const auto begin = Clock::now();
  const auto work = [&](std::stop_token) { return await_sum(world, mesh, 1, sum); };
  Task<void> task = with_deadline(100ms, "sum of the pair", work);
  Task<void> kept = keep_end(std::move(task), bounded.end);
  co_await std::move(kept);
  bounded.took = Clock::now() - begin;
}

void expect_timeout_in_time(const Bounded& bounded) {
  EXPECT_TRUE(bounded.end.is(ErrorKind::Timeout)) << bounded.end;
  EXPECT_TRUE(bounded.end.names("sum of the pair: not finished after 100 ms")) << bounded.end;
  EXPECT_GE(bounded.took, 100ms);
  EXPECT_LT(bounded.took, kSoon);
}

// The await of the pair is behind that of all, for which rank 2 is late: both of the pair give up.
Task<void> give_up_then_sum(World& world, Bounded& bounded, double& again) {
  const DeviceMesh pair = one_mesh(world);
  Task<void> first = bounded_sum(world, pair, bounded);
  co_await std::move(first);
  Task<void> second = await_sum(world, pair, 10, again);
  co_await std::move(second);
}
Task<void> all_give_up(World& world, Bounded& bounded) {
  const DeviceMesh all = all_of(world);
  one_mesh(world);
  if (world.rank() == 2) be_busy(kLate);
  double sum = 0, again = 0;
  Task<void> awaited = await_sum(world, all, 1, sum);
  Task<void> pair = give_up_then_sum(world, bounded, again);
  Task<void> both = when_all(std::move(awaited), std::move(pair));
  co_await std::move(both);
  EXPECT_EQ(sum, 3);
  if (world.rank() < 2) {
    EXPECT_EQ(again, 20);
  }
  double after = 0;
  Task<void> last = await_sum(world, all, 5, after);
  co_await std::move(last);
  EXPECT_EQ(after, 15);
}

TEST(Awaiting, AnAwaitThatAllRanksGiveUpIsATimeoutAndTheProgramGoesOn) {
  std::vector<Bounded> bounded(3);
  expect_all_well(ends_of(quick_options(3), [&](World& world) {
    return all_give_up(world, bounded[static_cast<std::size_t>(world.rank())]);
  }));
  for (const std::size_t rank : {0U, 1U}) expect_timeout_in_time(bounded[rank]);
}

Task<void> one_gives_up(World& world, Bounded& bounded) {
  const DeviceMesh all = all_of(world);
  if (world.rank() == 1) be_busy(kLate);
  Task<void> first = bounded_sum(world, all, bounded);
  co_await std::move(first);
  double again = 0;
  Task<void> second = await_sum(world, all, 10, again);
  co_await std::move(second);
}

TEST(Awaiting, AnAwaitThatOneRankGivesUpIsAnErrorOfTheNextCollectiveOnAllRanks) {
  std::vector<Bounded> bounded(2);
  const std::vector<End> ends = ends_of(quick_options(2), [&](World& world) {
    return one_gives_up(world, bounded[static_cast<std::size_t>(world.rank())]);
  });
  expect_timeout_in_time(bounded[0]);
  EXPECT_FALSE(bounded[1].end.failed) << bounded[1].end;
  for (const End& end : ends) {
    EXPECT_TRUE(end.is(ErrorKind::CommFailed)) << end;
    EXPECT_TRUE(end.names("sums.h:")) << end;  // where the program redistributes
  }
}

struct Boom : std::runtime_error {
  Boom() : std::runtime_error("boom") {}
};
Task<void> sleep_then_throw() {
  co_await sleep_for(50ms);
  throw Boom();
}
Task<void> fail_beside_a_collective(World& world, End& sibling, Bounded& caught) {
  const DeviceMesh all = all_of(world);
  if (world.rank() == 1) be_busy(kLate);
  const auto begin = Clock::now();
  double sum = 0;
  Task<void> awaited = await_sum(world, all, 1, sum), failing = sleep_then_throw();
  Task<void> noted = note_end(std::move(awaited), sibling);
  Task<void> both = when_all(std::move(noted), std::move(failing));
  Task<void> kept = keep_end(std::move(both), caught.end);
  co_await std::move(kept);
  caught.took = Clock::now() - begin;
}

TEST(Awaiting, AFailureCancelsTheAwaitOfACollectiveForWhichAPeerIsLate) {
  std::vector<End> siblings(2);
  std::vector<Bounded> caught(2);
  ends_of(quick_options(2), [&](World& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    return fail_beside_a_collective(world, siblings[rank], caught[rank]);
  });
  EXPECT_TRUE(siblings[0].is(ErrorKind::Cancelled)) << siblings[0];
  EXPECT_EQ(caught[0].end.text, "boom");
  EXPECT_LT(caught[0].took, kSoon);
}

// --- overlap ---

Task<void> note_issue_and_resumption(World& world, std::string& log) {
  const Redistribution issued = term(world, all_of(world), 1).redistribute(Replicate());
  log += "A:issue ";
  co_await issued;
  log += "A:resumed ";
}
Task<void> compute(std::string& log) {
  for (int i = 0; i < 5; ++i) {
    log += cat("B", i, " ");
    co_await yield();
  }
}
Task<void> compute_under_communication(World& world, std::string& log) {
  Task<void> first = note_issue_and_resumption(world, log), second = compute(log);
  Task<void> both = when_all(std::move(first), std::move(second));
  co_await std::move(both);
}

TEST(Awaiting, ASiblingDoesAllItsComputeBeforeTheRankSleeps) {
  std::vector<std::string> logs(2);
  expect_all_well(ends_of(quick_options(2), [&](World& world) {
    return compute_under_communication(world, logs[static_cast<std::size_t>(world.rank())]);
  }));
  for (const std::string& log : logs) EXPECT_EQ(log, "A:issue B0 B1 B2 B3 B4 A:resumed ");
}

Task<void> sum_then_flag(World& world, bool& done) {
  double sum = 0;
  Task<void> awaited = await_sum(world, all_of(world), 1, sum);
  co_await std::move(awaited);
  done = true;
}
Task<void> yield_until(const bool& done) {
  while (!done) co_await yield();
}
Task<void> yield_beside_a_collective(World& world) {
  bool done = false;
  Task<void> first = sum_then_flag(world, done), second = yield_until(done);
  Task<void> both = when_all(std::move(first), std::move(second));
  co_await std::move(both);
}

TEST(Awaiting, ALoopOfYieldsDoesNotKeepAnAwaitFromResuming) {
  expect_all_well(ends_of(quick_options(2), yield_beside_a_collective));
}

}  // namespace
}  // namespace coshard::awaiting
