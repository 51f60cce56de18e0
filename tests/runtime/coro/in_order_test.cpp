// in_order: a wait for time at its place in the program's order.
#include <coshard/runtime/coro/in_order.h>

#include <gtest/gtest.h>

#include <chrono>
#include <coroutine>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/when_all.h>
#include "tests/runtime/coro/counted.h"
#include "tests/support/ends.h"
#include "tests/support/virtual_ranks.h"

namespace coshard::testing {
namespace {
using namespace std::chrono_literals;
using std::chrono::milliseconds;
using testing::End;
using testing::in_virtual_time;
using testing::keep_end;
using testing::note_end;

Task<int> later(milliseconds nap, int value) {
  co_await sleep_for(nap);
  co_return value;
}
Task<std::unique_ptr<int>> boxed(int value) {
  co_await yield();
  co_return std::make_unique<int>(value);
}
Task<void> throws_later() {
  co_await sleep_for(1ms);
  throw std::runtime_error("no such file");
}

Task<void> waits_in_order(milliseconds nap, int name, std::vector<int>& order) {
  const int value = co_await in_order(later(nap, name));
  order.push_back(value);
}
Task<void> three(std::vector<int>& order) {
  Task<void> slow = waits_in_order(30ms, 0, order), quick = waits_in_order(1ms, 1, order),
             middle = waits_in_order(15ms, 2, order);
  Task<void> all = when_all(std::move(slow), std::move(quick), std::move(middle));
  co_await std::move(all);
}

TEST(InOrder, ResumesInTheOrderOfTheProgramWhateverIsOverFirst) {
  std::vector<int> order;
  const auto took = in_virtual_time([&] { return three(order); });
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(took, 30ms);  // they slept together
}

Task<int> unboxes() {
  const std::unique_ptr<int> box = co_await in_order(boxed(7));
  co_return *box;
}
TEST(InOrder, GivesTheValueOfItsTask) { EXPECT_EQ(sync_wait(unboxes()), 7); }

Task<void> meets_the_exception() { co_await in_order(throws_later()); }
TEST(InOrder, ThrowsTheExceptionOfItsTask) {
  EXPECT_THROW(sync_wait(meets_the_exception()), std::runtime_error);
}

Task<void> nested(int& value) {
  Task<int> inner = later(2ms, 5);
  value = co_await in_order(std::move(inner));
}
Task<void> nests() {
  int value = 0;
  Task<void> outer = nested(value);
  co_await in_order(std::move(outer));
  EXPECT_EQ(value, 5);
}
TEST(InOrder, InsideItselfGoesOnAsSoonAsItIsOver) { sync_wait(nests()); }

Task<void> long_nap(End& end) { return note_end(sleep_for(1h), end); }
Task<void> waits_for_ever(End& nap) { co_await in_order(long_nap(nap)); }
Task<void> throws_in_5_ms() {
  co_await sleep_for(5ms);
  throw std::runtime_error("boom");
}
Task<void> cancelled_by_a_sibling(End& nap, End& waiter, End& caught) {
  Task<void> waits = waits_for_ever(nap), fails = throws_in_5_ms();
  Task<void> noted = note_end(std::move(waits), waiter);
  Task<void> both = when_all(std::move(noted), std::move(fails));
  Task<void> kept = keep_end(std::move(both), caught);
  co_await std::move(kept);
}

TEST(InOrder, BeingCancelledCancelsItsTask) {
  End nap, waiter, caught;
  const auto took = in_virtual_time([&] { return cancelled_by_a_sibling(nap, waiter, caught); });
  EXPECT_EQ(took, 5ms);
  EXPECT_TRUE(nap.is(ErrorKind::Cancelled)) << nap;
  EXPECT_TRUE(waiter.is(ErrorKind::Cancelled)) << waiter;
  EXPECT_EQ(caught.text, "boom");
}

Task<void> bounded(End& nap, std::vector<int>& order) {
  End end;
  const auto work = [&](std::stop_token) { return waits_for_ever(nap); };
  Task<void> task = with_deadline(20ms, "the next batch", work);
  Task<void> kept = keep_end(std::move(task), end);
  co_await std::move(kept);
  EXPECT_TRUE(end.is(ErrorKind::Timeout)) << end;
  EXPECT_TRUE(end.names("the next batch: not finished after 20 ms")) << end;
  order.push_back(0);
}
Task<void> bounded_behind_another(std::vector<int>& order, End& nap) {
  Task<void> first = waits_in_order(120ms, 1, order), second = bounded(nap, order);
  Task<void> both = when_all(std::move(first), std::move(second));
  co_await std::move(both);
}

TEST(InOrder, AWaitThatADeadlineEndsLeavesItsPlaceInTheOrder) {
  End nap;
  std::vector<int> order;
  in_virtual_time([&] { return bounded_behind_another(order, nap); });
  EXPECT_EQ(order, (std::vector<int>{0, 1}));
  EXPECT_TRUE(nap.is(ErrorKind::Cancelled)) << nap;
}

Task<void> never(Counted counted) {
  const Counted local = counted;
  co_await std::suspend_always{};
}
Task<void> waits_for_nobody(Counts& counts) {
  Task<void> task = never(Counted(counts));
  co_await in_order(std::move(task));
}

TEST(InOrder, ATaskThatNobodyWillCompleteIsAnErrorAndIsDestroyed) {
  Counts counts;
  EXPECT_THROW(sync_wait(waits_for_nobody(counts)), Error);
  EXPECT_EQ(counts.alive(), 0);
}

TEST(InOrder, OfAnEmptyTaskOrWithoutAnExecutorIsRefused) {
  EXPECT_THROW((void)in_order(Task<int>()), Error);
  Task<int> task = unboxes();
  task.handle().resume();
  EXPECT_TRUE(task.done());
  EXPECT_THROW(task.take(), Error);
}

}  // namespace
}  // namespace coshard::testing
