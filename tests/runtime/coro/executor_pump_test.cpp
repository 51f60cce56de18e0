// What the executor does between turns, counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <vector>

#include <coshard/runtime/coro/executor.h>
#include "tests/runtime/coro/allocations.h"

namespace coshard::testing {
namespace {

// How many handlers ran between each two turns of a task that yields.
Task<void> count_handlers(const int& handlers, std::vector<int>& between) {
  int before = 0;
  for (int turn = 0; turn < 20'000 && handlers < 40; ++turn) {
    co_await yield();
    if (handlers > before) between.push_back(handlers - before);
    before = handlers;
  }
}

TEST(Turns, ALookAtAsioRunsSixteenHandlersAndNoMore) {
  Executor executor;
  int handlers = 0;
  for (int i = 0; i < 40; ++i) boost::asio::post(executor.io_context(), [&] { ++handlers; });
  std::vector<int> between;
  executor.run(count_handlers(handlers, between));
  EXPECT_EQ(handlers, 40);
  EXPECT_EQ(between, (std::vector<int>{16, 16, 8}));
}

// Posts itself again until it is told to stop; so each look at Asio finds it.
struct Again {
  boost::asio::io_context& context;
  int& handlers;
  const bool& stop;
  void operator()() const {
    ++handlers;
    if (!stop) boost::asio::post(context, *this);
  }
};
Task<int> count_looks(int turns, const int& handlers, bool& stop) {
  int looks = 0;
  for (int turn = 0; turn < turns; ++turn) {
    const int before = handlers;
    co_await yield();
    looks += handlers > before;
  }
  stop = true;
  co_return looks;
}

TEST(Turns, AsioIsLookedAtNowAndThenAndNotAtEveryTurn) {
  Executor executor;
  int handlers = 0;
  bool stop = false;
  boost::asio::post(executor.io_context(), Again{executor.io_context(), handlers, stop});
  const int looks = executor.run(count_looks(10'000, handlers, stop));
  EXPECT_LE(looks, 10'000 / 64);
  EXPECT_GE(looks, 10'000 / 2048);
}

Task<int> one_turn(int value) {
  co_await yield();
  co_return value;
}
Task<long> round_trips(int count) {
  long sum = 0;
  for (int i = 0; i < count; ++i) {
    Task<int> task = one_turn(1);
    sum += co_await std::move(task);
  }
  co_return sum;
}
Task<long> allocations_of_round_trips(int count) {
  Task<long> first = round_trips(count);
  co_await std::move(first);
  const long before = allocations();
  Task<long> second = round_trips(count);
  co_await std::move(second);
  co_return allocations() - before;
}

TEST(Turns, AThousandTasksAllocateNothingOnceTheirFramesAreThere) {
  if (!kCacheFrames) GTEST_SKIP() << "a sanitizer sees each frame";
  EXPECT_EQ(sync_wait(allocations_of_round_trips(1000)), 0);
}

}  // namespace
}  // namespace coshard::testing
