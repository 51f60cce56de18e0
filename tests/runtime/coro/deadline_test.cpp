#include <coshard/runtime/coro/deadline.h>

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include <coshard/runtime/coro/executor.h>
#include <coshard/runtime/coro/when_all.h>

namespace coshard {
namespace {
using namespace std::chrono_literals;

template <class T>
Error error_of(Task<T> task) {
  try {
    sync_wait(std::move(task));
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorKind::BadInput, "nothing was thrown");
}

Task<std::chrono::nanoseconds> measured_sleep(std::chrono::nanoseconds duration) {
  const auto begin = std::chrono::steady_clock::now();
  co_await sleep_for(duration);
  co_return std::chrono::steady_clock::now() - begin;
}

TEST(SleepFor, ResumesNotBeforeItsTime) { EXPECT_GE(sync_wait(measured_sleep(5ms)), 5ms); }

TEST(SleepFor, LetsOthersRunMeanwhile) {
  const auto begin = std::chrono::steady_clock::now();
  sync_wait(when_all(sleep_for(20ms), sleep_for(20ms), sleep_for(20ms)));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 20ms);
}

TEST(SleepFor, WithAStopAlreadyRequestedIsCancelled) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(error_of(sleep_for(1h, stop.get_token())).kind(), ErrorKind::Cancelled);
}

TEST(SleepFor, IsCancelledByAnotherThread) {
  std::stop_source stop;
  std::thread other([&stop] {
    std::this_thread::sleep_for(5ms);
    stop.request_stop();
  });
  EXPECT_EQ(error_of(sleep_for(1h, stop.get_token())).kind(), ErrorKind::Cancelled);
  other.join();
}

TEST(SleepFor, SurvivesAStopThatComesAsItEnds) {
  for (int round = 0; round < 50; ++round) {
    std::stop_source stop;
    std::thread other([&stop, round] {
      std::this_thread::sleep_for(std::chrono::microseconds(100 + 10 * round));
      stop.request_stop();
    });
    try {
      sync_wait(sleep_for(300us, stop.get_token()));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Cancelled);
    }
    other.join();
  }
}

Task<void> stop_soon(std::stop_source stop) {
  co_await yield();
  stop.request_stop();
}

TEST(SleepFor, IsCancelledByASibling) {
  std::stop_source stop;
  auto both = when_all(sleep_for(1h, stop.get_token()), stop_soon(stop));
  EXPECT_EQ(error_of(std::move(both)).kind(), ErrorKind::Cancelled);
}

Task<int> slow(std::chrono::nanoseconds duration, std::stop_token stop) {
  co_await sleep_for(duration, std::move(stop));
  co_return 3;
}
Task<int> stubborn(std::stop_token stop) {
  try {
    for (;;) co_await yield();
  } catch (const Error&) {
    EXPECT_TRUE(stop.stop_requested());
  }
  throw std::runtime_error("the disk is full");
}

// The lambdas are not coroutines, and with_deadline is called outside of a co_await expression.
Task<int> bounded(std::chrono::nanoseconds limit, std::chrono::nanoseconds duration) {
  auto work = [duration](std::stop_token stop) { return slow(duration, std::move(stop)); };
  Task<int> task = with_deadline(limit, "all_reduce of loss", work);
  co_return co_await std::move(task);
}

TEST(WithDeadline, GivesTheValueOfWorkThatEndsInTime) { EXPECT_EQ(sync_wait(bounded(1h, 1ms)), 3); }

TEST(WithDeadline, StopsTheWorkAndNamesItAndTheLimit) {
  const Error error = error_of(bounded(5ms, 1h));
  EXPECT_EQ(error.kind(), ErrorKind::Timeout);
  EXPECT_STREQ(error.what(), "all_reduce of loss: not finished after 5 ms");
}

Task<void> bounded_stubborn() {
  Task<int> task = with_deadline(1500us, "save", stubborn);
  co_await std::move(task);
}

TEST(WithDeadline, KeepsTheErrorThatTheWorkEndedWith) {
  const Error error = error_of(bounded_stubborn());
  EXPECT_EQ(error.kind(), ErrorKind::Timeout);
  EXPECT_STREQ(error.what(), "save: not finished after 1.5 ms; it ended with: the disk is full");
}

Task<void> fails(std::stop_token) {
  co_await yield();
  fail(ErrorKind::CommFailed, "rank 1 is gone");
}
Task<void> bounded_failure() {
  Task<void> task = with_deadline(1h, "work", fails);
  co_await std::move(task);
}

TEST(WithDeadline, PassesOnTheErrorOfWorkThatFailsInTime) {
  const Error error = error_of(bounded_failure());
  EXPECT_EQ(error.kind(), ErrorKind::CommFailed);
  EXPECT_STREQ(error.what(), "rank 1 is gone");
}

Task<void> bounded_from_outside(std::stop_source outer) {
  auto work = [](std::stop_token stop) { return sleep_for(1h, std::move(stop)); };
  Task<void> inner = with_deadline(1h, "inner", work, outer.get_token());
  Task<void> stopper = stop_soon(outer);
  Task<void> both = when_all(std::move(inner), std::move(stopper));
  co_await std::move(both);
}

TEST(WithDeadline, AnOuterStopIsACancellationNotATimeout) {
  std::stop_source outer;
  EXPECT_EQ(error_of(bounded_from_outside(outer)).kind(), ErrorKind::Cancelled);
}

Task<int> nested(std::stop_token stop) {
  auto work = [](std::stop_token inner) { return slow(1h, std::move(inner)); };
  Task<int> task = with_deadline(1h, "inner", work, std::move(stop));
  co_return co_await std::move(task);
}
Task<int> outer_deadline() {
  Task<int> task = with_deadline(5ms, "outer", nested);
  co_return co_await std::move(task);
}

TEST(WithDeadline, TheOuterOfTwoNestedDeadlinesStopsTheInnerWork) {
  EXPECT_STREQ(error_of(outer_deadline()).what(), "outer: not finished after 5 ms");
}

}  // namespace
}  // namespace coshard
