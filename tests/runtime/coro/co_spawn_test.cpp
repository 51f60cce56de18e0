#include <coshard/runtime/coro/co_spawn.h>

#include <gtest/gtest.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <coshard/runtime/coro/asio.h>
#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/when_all.h>
#include "tests/runtime/coro/counted.h"

namespace coshard {
namespace {
namespace asio = boost::asio;
using namespace std::chrono_literals;

Task<int> square(int value) {
  for (int i = 0; i < 300; ++i) co_await yield();
  co_await sleep_for(1ms);
  co_return value* value;
}
Task<void> fails_in_a_task() {
  co_await yield();
  throw std::runtime_error("spawned");
}

TEST(CoSpawn, WithAFutureCarriesTheValue) {
  asio::io_context context;
  std::future<int> future = co_spawn(context, square(6), asio::use_future);
  context.run();
  EXPECT_EQ(future.get(), 36);
}

TEST(CoSpawn, WithAFutureCarriesTheException) {
  asio::io_context context;
  std::future<void> future = co_spawn(context, fails_in_a_task(), asio::use_future);
  context.run();
  EXPECT_THROW(future.get(), std::runtime_error);
}

TEST(CoSpawn, WithACallbackStartsOnTheContextAndCallsBackOnce) {
  asio::io_context context;
  std::vector<int> values;
  for (int i = 0; i < 3; ++i) {
    co_spawn(context, square(i), [&values](std::exception_ptr error, int value) {
      EXPECT_EQ(error, nullptr);
      EXPECT_EQ(Executor::current(), nullptr);
      values.push_back(value);
    });
  }
  EXPECT_TRUE(values.empty());
  context.run();
  EXPECT_EQ(values.size(), 3U);
}

Task<std::unique_ptr<std::string>> boxed() {
  co_await yield();
  co_return std::make_unique<std::string>("box");
}

TEST(CoSpawn, CarriesAMoveOnlyValue) {
  asio::io_context context;
  std::string got;
  co_spawn(context, boxed(),
           [&got](std::exception_ptr, std::unique_ptr<std::string> value) { got = *value; });
  context.run();
  EXPECT_EQ(got, "box");
}

asio::awaitable<int> asio_coroutine() {
  auto executor = co_await asio::this_coro::executor;
  const int a = co_await co_spawn(executor, square(3), asio::use_awaitable);
  const int b = co_await co_spawn(executor, square(4), asio::use_awaitable);
  co_return a + b;
}

TEST(CoSpawn, ATaskIsAwaitedFromAnAsioCoroutine) {
  asio::io_context context;
  std::future<int> future = asio::co_spawn(context, asio_coroutine(), asio::use_future);
  context.run();
  EXPECT_EQ(future.get(), 25);
}

Task<int> awaits_asio_coroutine() {
  const asio::any_io_executor& executor = Executor::current()->asio_executor();
  co_return co_await asio::co_spawn(executor, asio_coroutine(), use_task);
}

TEST(CoSpawn, AnAsioCoroutineIsAwaitedFromATaskAndAwaitsTasksItself) {
  EXPECT_EQ(sync_wait(awaits_asio_coroutine()), 25);
  asio::io_context context;
  std::future<int> future = co_spawn(context, awaits_asio_coroutine(), asio::use_future);
  context.run();
  EXPECT_EQ(future.get(), 25);
}

Task<void> count(int& counter, int turns) {
  for (int i = 0; i < turns; ++i) {
    ++counter;
    if (i % 10 == 0) co_await sleep_for(10us);
    co_await yield();
  }
}
Task<int> count_together() {
  int counter = 0;  // not atomic: one handler at a time
  co_await when_all(count(counter, 100), count(counter, 100), count(counter, 100));
  co_return counter;
}

TEST(CoSpawn, OnAThreadPoolATaskRunsOnOneThreadAtATime) {
  asio::thread_pool pool(4);
  std::vector<std::future<int>> futures;
  for (int i = 0; i < 8; ++i) futures.push_back(co_spawn(pool, count_together(), asio::use_future));
  for (std::future<int>& future : futures) EXPECT_EQ(future.get(), 300);
}

Task<void> holds(testing::Counted parameter) {
  const testing::Counted local = parameter;
  co_await sleep_for(1h);
}

TEST(CoSpawn, ATaskIsDestroyedWithTheContextItWaitsOn) {
  testing::Counts counts;
  {
    asio::io_context context;
    co_spawn(context, holds(testing::Counted(counts)), asio::detached);
    context.run_for(5ms);
    EXPECT_EQ(counts.alive(), 2);
  }
  EXPECT_EQ(counts.alive(), 0);
}

TEST(CoSpawn, ATaskIsDestroyedWithTheContextThatNeverRan) {
  testing::Counts counts;
  {
    asio::io_context context;
    co_spawn(context, holds(testing::Counted(counts)), asio::detached);
  }
  EXPECT_EQ(counts.alive(), 0);
}

Task<void> never(testing::Counted parameter) { co_await std::suspend_always{}; }

TEST(CoSpawn, ATaskThatNobodyWillCompleteIsAnError) {
  testing::Counts counts;
  asio::io_context context;
  std::future<void> future = co_spawn(context, never(testing::Counted(counts)), asio::use_future);
  context.run();
  EXPECT_THROW(future.get(), Error);
  EXPECT_EQ(counts.alive(), 0);
}

Task<void> stoppable(std::stop_token stop) { co_await sleep_for(1h, std::move(stop)); }

TEST(CoSpawn, AStopReachesATaskOnTheUsersContext) {
  asio::thread_pool pool(2);
  std::stop_source stop;
  std::future<void> future = co_spawn(pool, stoppable(stop.get_token()), asio::use_future);
  stop.request_stop();
  EXPECT_THROW(future.get(), Error);
}

}  // namespace
}  // namespace coshard
