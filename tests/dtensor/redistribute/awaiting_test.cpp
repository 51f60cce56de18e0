// Awaiting suspends a branch and never blocks its rank: siblings, timers and signals go on.
#include <gtest/gtest.h>
#include <unistd.h>

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
using testing::be_busy_until;
using testing::End;
using testing::ends_of;
using testing::keep_end;
using testing::note_end;
using testing::one_mesh;
using testing::other_mesh;
using testing::quick_options;
using testing::term;

// A late peer comes when all that must not wait for it is over, or by then.
constexpr milliseconds kLate = 2400ms, kBeforeLate = kLate / 2;

WorldOptions patient_options(int ranks) {
  WorldOptions options = quick_options(ranks);
  options.timeout = 10s;
  return options;
}
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

constexpr int kTicks = 30;
Task<void> tick(std::atomic<int>& ticked) {
  for (; ticked < kTicks; ++ticked) co_await sleep_for(2ms);
}
Task<void> await_sum_after_ticks(World& world, DeviceMesh mesh, const std::atomic<int>& ticked) {
  double sum = 0;
  Task<void> awaited = await_sum(world, mesh, 1, sum);
  co_await std::move(awaited);
  EXPECT_EQ(sum, 2);
  if (world.rank() == 0) {
    EXPECT_EQ(ticked, kTicks);
  }
}
Task<void> tick_beside_a_late_peer(World& world, std::atomic<int>& ticked) {
  const DeviceMesh all = all_of(world);
  if (world.rank() == 1) be_busy_until([&] { return ticked == kTicks; }, kLate);
  Task<void> awaited = await_sum_after_ticks(world, all, ticked), ticker = tick(ticked);
  Task<void> both = when_all(std::move(awaited), std::move(ticker));
  co_await std::move(both);
}

TEST(Awaiting, ATickerGoesOnWhileACollectiveWaitsForALatePeer) {
  std::atomic<int> ticked{0};
  expect_all_well(ends_of(patient_options(2),
                          [&](World& world) { return tick_beside_a_late_peer(world, ticked); }));
}

struct Signalled {
  std::atomic<bool> listening{false}, handled{false};
  bool handled_first = false;
};
Task<void> handle_signal(World& world, Signalled& seen) {
  if (world.rank() != 0) co_return;
  boost::asio::signal_set signals(world.executor().io_context(), SIGUSR1);
  Task<int> wait = signals.async_wait(use_task);
  seen.listening = true;
  co_await std::move(wait);
  seen.handled = true;
}
Task<void> signal_beside_a_late_peer(World& world, Signalled& seen) {
  const DeviceMesh all = all_of(world);
  if (world.rank() == 1) {
    while (!seen.listening) be_busy(1ms);
    be_busy(20ms);
    ::kill(::getpid(), SIGUSR1);
    be_busy_until([&] { return seen.handled.load(); }, kLate);
    seen.handled_first = seen.handled;
  }
  double sum = 0;
  Task<void> awaited = await_sum(world, all, 1, sum), handler = handle_signal(world, seen);
  Task<void> both = when_all(std::move(awaited), std::move(handler));
  co_await std::move(both);
}

TEST(Awaiting, ASignalIsHandledWhileACollectiveWaitsForALatePeer) {
  Signalled seen;
  expect_all_well(ends_of(patient_options(2),
                          [&](World& world) { return signal_beside_a_late_peer(world, seen); }));
  EXPECT_TRUE(seen.handled_first);
}

// --- deadlines ---

// One await under a deadline of 100 ms: how it ended, and when.
struct Bounded {
  End end;
  Clock::duration took{};
  std::atomic<bool> over{false};
};
Task<void> bounded_sum(World& world, DeviceMesh mesh, Bounded& bounded) {
  double sum = 0;
  const auto begin = Clock::now();
  const auto work = [&](std::stop_token) { return await_sum(world, mesh, 1, sum); };
  Task<void> task = with_deadline(100ms, "sum of the pair", work);
  Task<void> kept = keep_end(std::move(task), bounded.end);
  co_await std::move(kept);
  bounded.took = Clock::now() - begin;
  bounded.over = true;
}

void expect_timeout_in_time(const Bounded& bounded) {
  EXPECT_TRUE(bounded.end.is(ErrorKind::Timeout)) << bounded.end;
  EXPECT_TRUE(bounded.end.names("sum of the pair: not finished after 100 ms")) << bounded.end;
  EXPECT_GE(bounded.took, 100ms);
  EXPECT_LT(bounded.took, kBeforeLate);
}

// The await of the pair is behind that of all, for which rank 2 is late: both of the pair give up.
Task<void> give_up_then_sum(World& world, Bounded& bounded, double& again) {
  const DeviceMesh pair = one_mesh(world);
  Task<void> first = bounded_sum(world, pair, bounded);
  co_await std::move(first);
  Task<void> second = await_sum(world, pair, 10, again);
  co_await std::move(second);
}
Task<void> all_give_up(World& world, std::vector<Bounded>& bounded) {
  const DeviceMesh all = all_of(world);
  one_mesh(world);
  if (world.rank() == 2) be_busy_until([&] { return bounded[0].over && bounded[1].over; }, kLate);
  double sum = 0, again = 0;
  Task<void> awaited = await_sum(world, all, 1, sum);
  Bounded& mine = bounded[static_cast<std::size_t>(world.rank())];
  Task<void> pair = give_up_then_sum(world, mine, again);
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
  expect_all_well(
      ends_of(patient_options(3), [&](World& world) { return all_give_up(world, bounded); }));
  for (const std::size_t rank : {0U, 1U}) expect_timeout_in_time(bounded[rank]);
}

Task<void> one_gives_up(World& world, std::vector<Bounded>& bounded) {
  const DeviceMesh all = all_of(world);
  if (world.rank() == 1) be_busy_until([&] { return bounded[0].over.load(); }, kLate);
  Task<void> first = bounded_sum(world, all, bounded[static_cast<std::size_t>(world.rank())]);
  co_await std::move(first);
  double again = 0;
  Task<void> second = await_sum(world, all, 10, again);
  co_await std::move(second);
}

TEST(Awaiting, AnAwaitThatOneRankGivesUpIsAnErrorOfTheNextCollectiveOnAllRanks) {
  std::vector<Bounded> bounded(2);
  const std::vector<End> ends =
      ends_of(patient_options(2), [&](World& world) { return one_gives_up(world, bounded); });
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
  co_await sleep_for(20ms);
  throw Boom();
}
Task<void> fail_beside_a_collective(World& world, End& sibling, std::vector<Bounded>& all_caught) {
  const DeviceMesh all = all_of(world);
  Bounded& caught = all_caught[static_cast<std::size_t>(world.rank())];
  if (world.rank() == 1) be_busy_until([&] { return all_caught[0].over.load(); }, kLate);
  const auto begin = Clock::now();
  double sum = 0;
  Task<void> awaited = await_sum(world, all, 1, sum), failing = sleep_then_throw();
  Task<void> noted = note_end(std::move(awaited), sibling);
  Task<void> both = when_all(std::move(noted), std::move(failing));
  Task<void> kept = keep_end(std::move(both), caught.end);
  co_await std::move(kept);
  caught.took = Clock::now() - begin;
  caught.over = true;
}

TEST(Awaiting, AFailureCancelsTheAwaitOfACollectiveForWhichAPeerIsLate) {
  std::vector<End> siblings(2);
  std::vector<Bounded> caught(2);
  ends_of(patient_options(2), [&](World& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    return fail_beside_a_collective(world, siblings[rank], caught);
  });
  EXPECT_TRUE(siblings[0].is(ErrorKind::Cancelled)) << siblings[0];
  EXPECT_EQ(caught[0].end.text, "boom");
  EXPECT_LT(caught[0].took, kBeforeLate);
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
    log += str_cat("B", i, " ");
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
