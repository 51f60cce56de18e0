// when_all is structured: the first failure ends the siblings and is what the caller sees.
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include <coshard/runtime/coro/asio.h>
#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/when_all.h>
#include "tests/runtime/coro/allocations.h"
#include "tests/runtime/coro/counted.h"
#include "tests/support/child.h"
#include "tests/support/ends.h"
#include "tests/support/errors.h"

namespace coshard::testing {
namespace {
namespace asio = boost::asio;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Socket = asio::local::stream_protocol::socket;
using testing::Boom;
using testing::Child;
using testing::End;
using testing::in_child;
using testing::keep_end;
using testing::note_end;

Task<void> throws_after(int turns, std::string what) {
  for (int i = 0; i < turns; ++i) co_await yield();
  throw Boom(what);
}

Task<void> ticks_for_ever() {
  for (;;) co_await sleep_for(1ms);
}
Task<void> yields_for_ever() {
  for (;;) co_await yield();
}
Task<void> reads_for_ever() {
  asio::io_context& context = Executor::current()->io_context();
  Socket here(context), there(context);
  asio::local::connect_pair(here, there);
  std::string text(10, ' ');
  Task<std::size_t> read = asio::async_read(here, asio::buffer(text), use_task);
  co_await std::move(read);
}
Task<void> joins_for_ever() {
  Task<void> first = ticks_for_ever(), second = reads_for_ever();
  Task<void> both = when_all(std::move(first), std::move(second));
  co_await std::move(both);
}

// 0: the failure came out.
template <Task<void> (*server)()>
int fails_beside() {
  try {
    sync_wait(when_all(throws_after(2, "boom"), server()));
  } catch (const Boom&) {
    return 0;
  }
  return 3;
}

TEST(Structured, AFailureEndsASiblingThatTicksForEver) {
  const Child child = in_child(fails_beside<ticks_for_ever>, 2);
  EXPECT_EQ(child.code, 0) << child;
}
TEST(Structured, AFailureEndsASiblingThatYieldsForEver) {
  const Child child = in_child(fails_beside<yields_for_ever>, 2);
  EXPECT_EQ(child.code, 0) << child;
}
TEST(Structured, AFailureEndsASiblingThatReadsWhatNobodyWrites) {
  const Child child = in_child(fails_beside<reads_for_ever>, 2);
  EXPECT_EQ(child.code, 0) << child;
}
TEST(Structured, AFailureEndsTheChildrenOfItsSiblings) {
  const Child child = in_child(fails_beside<joins_for_ever>, 2);
  EXPECT_EQ(child.code, 0) << child;
}

constexpr auto kLong = 30s;  // what waits for it has not been cancelled
Task<void> sleeps_long() { co_await sleep_for(kLong); }
Task<void> sleeps_on_a_timer() {
  asio::steady_timer timer(Executor::current()->io_context(), kLong);
  co_await timer.async_wait(use_task);
}
Task<void> sleeps_in_a_child() {
  Task<void> child = sleeps_long();
  co_await std::move(child);
}

// Memory runs out as the siblings are told.
Task<void> throws_when_memory_ends(long allocations_left) {
  co_await yield();
  const std::exception_ptr boom = std::make_exception_ptr(Boom());
  fail_allocation_after(allocations_left);
  std::rethrow_exception(boom);
}
Task<void> catches_when_memory_ends(long allocations_left) {
  Task<void> both = when_all(throws_when_memory_ends(allocations_left), ticks_for_ever());
  bool caught = false;
  try {
    co_await std::move(both);
  } catch (const Boom&) {
    caught = true;
  }
  fail_allocation_after(-1);
  EXPECT_TRUE(caught);
}
TEST(Structured, AFailureIsCaughtThoughMemoryIsExhausted) {
  if (!kCountsAllocations) GTEST_SKIP() << "no allocation fails under a sanitizer";
  for (long left = 0; left < 10; ++left) sync_wait(catches_when_memory_ends(left));
}

// A wait or a join that finds no memory is an error of its task, and leaves nothing behind.
Task<void> joins_two() {
  Task<void> both = when_all(throws_after(0, "boom"), throws_after(0, "boom"));
  co_await std::move(both);
}
Task<void> sleeps_briefly() { co_await sleep_for(1ms); }
Task<void> finds_no_memory(Task<void> (*work)(), long allocations_left, long& errors) {
  Task<void> task = work();
  fail_allocation_after(allocations_left);
  try {
    co_await std::move(task);
  } catch (const std::bad_alloc&) {
    ++errors;
  } catch (const Boom&) {
  }
  fail_allocation_after(-1);
  co_await sleep_for(1ms);
}
TEST(Structured, AWaitThatFindsNoMemoryIsAnErrorOfItsTask) {
  if (!kCountsAllocations) GTEST_SKIP() << "no allocation fails under a sanitizer";
  for (Task<void> (*work)() : {joins_two, sleeps_briefly}) {
    long errors = 0;
    for (long left = 0; left < 8; ++left) sync_wait(finds_no_memory(work, left, errors));
    EXPECT_GT(errors, 0);
  }
}

// The ends of siblings of a failure, in the order of the list, and what the caller caught.
struct Ends {
  std::vector<End> siblings = std::vector<End>(3);
  End caught;
  Clock::duration took{};
};
Task<void> fail_beside_sleepers(Ends& ends) {
  const auto begin = Clock::now();
  std::vector<Task<void>> tasks;
  tasks.push_back(note_end(sleeps_long(), ends.siblings[0]));
  tasks.push_back(throws_after(1, "boom"));
  tasks.push_back(note_end(sleeps_on_a_timer(), ends.siblings[1]));
  tasks.push_back(note_end(sleeps_in_a_child(), ends.siblings[2]));
  Task<void> all = when_all(std::move(tasks));
  Task<void> kept = keep_end(std::move(all), ends.caught);
  co_await std::move(kept);
  ends.took = Clock::now() - begin;
  for (const End& end : ends.siblings) EXPECT_TRUE(end.failed) << "it has not ended";
}

TEST(Structured, TheAwaitsOfTheSiblingsThrowCancelledAtOnceAndTheCallerGetsTheFailure) {
  Ends ends;
  sync_wait(fail_beside_sleepers(ends));
  EXPECT_LT(ends.took, kLong);
  EXPECT_EQ(ends.caught.text, "boom");
  EXPECT_FALSE(ends.caught.typed);
  for (const End& end : ends.siblings) EXPECT_TRUE(end.is(ErrorKind::Cancelled)) << end;
}

Task<void> catches_and_goes_on(int& turns) {
  for (int round = 0; round < 3; ++round) {
    End end;
    Task<void> failing = throws_after(round, "boom"), waiter_state = sleeps_long();
    Task<void> both = when_all(std::move(failing), std::move(waiter_state));
    Task<void> kept = keep_end(std::move(both), end);
    co_await std::move(kept);
    EXPECT_EQ(end.text, "boom");
    Task<void> nap = sleep_for(1ms);  // the caller itself is not cancelled
    co_await std::move(nap);
    ++turns;
  }
}

TEST(Structured, WhoCatchesTheFailureGoesOn) {
  int turns = 0;
  const auto begin = Clock::now();
  sync_wait(catches_and_goes_on(turns));
  EXPECT_EQ(turns, 3);
  EXPECT_LT(Clock::now() - begin, kLong);
}

TEST(Structured, TheFirstFailureInTimeIsWhatTheCallerSees) {
  try {
    sync_wait(when_all(throws_after(3, "late"), throws_after(1, "early")));
    FAIL() << "nothing was thrown";
  } catch (const Boom& boom) {
    EXPECT_STREQ(boom.what(), "early");
  }
}

Task<void> holds(Counted parameter) {
  const Counted local = parameter;
  Task<void> nap = sleep_for(kLong);
  co_await std::move(nap);
}
Task<void> frames_are_gone(Counts& counts) {
  const Counted first(counts);
  Task<void> holder = holds(first), failing = throws_after(1, "boom");
  Task<void> both = when_all(std::move(holder), std::move(failing));
  End end;
  const auto begin = Clock::now();
  Task<void> kept = keep_end(std::move(both), end);
  co_await std::move(kept);
  EXPECT_LT(Clock::now() - begin, kLong);
  EXPECT_EQ(counts.alive(), 1);
}

TEST(Structured, TheSiblingsFramesAreGoneWhenTheCallerGoesOn) {
  Counts counts;
  sync_wait(frames_are_gone(counts));
  EXPECT_EQ(counts.alive(), 0);
}

}  // namespace
}  // namespace coshard::testing
