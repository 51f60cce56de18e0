#include <coshard/runtime/coro/executor.h>

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <coshard/runtime/coro/co_spawn.h>
#include <coshard/runtime/coro/when_all.h>
#include "tests/runtime/coro/counted.h"

namespace coshard {
namespace {

constexpr int kMany = 1'000'000;

Task<Executor*> who() { co_return Executor::current(); }

TEST(Executor, IsCurrentWhileItRunsAndOnlyThen) {
  Executor executor;
  EXPECT_EQ(Executor::current(), nullptr);
  EXPECT_EQ(executor.run(who()), &executor);
  EXPECT_EQ(Executor::current(), nullptr);
}

Task<int> throws() {
  co_await yield();
  throw std::runtime_error("root");
  co_return 0;
}

TEST(Executor, ThrowsTheExceptionOfTheRootAndRunsTheNextOne) {
  Executor executor;
  EXPECT_THROW(executor.run(throws()), std::runtime_error);
  EXPECT_EQ(Executor::current(), nullptr);
  EXPECT_EQ(executor.run(who()), &executor);
}

Task<void> never_ends(testing::Counted parameter) { co_await std::suspend_always{}; }

TEST(Executor, ATaskThatNobodyWillCompleteIsAnErrorAndIsDestroyed) {
  testing::Counts counts;
  Executor executor;
  try {
    executor.run(never_ends(testing::Counted(counts)));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_STREQ(error.what(),
                 "executor: deadlock: the task waits for something that nothing will complete");
  }
  EXPECT_EQ(counts.alive(), 0);
  EXPECT_EQ(executor.run(who()), &executor);
}

Task<void> waits_inside() {
  EXPECT_THROW(sync_wait(who()), Error);
  EXPECT_THROW(Executor::current()->run(who()), Error);
  co_return;
}

TEST(Executor, BlockingInsideARunningExecutorIsAnError) { sync_wait(waits_inside()); }

TEST(Executor, YieldWithoutAnExecutorIsAnError) { EXPECT_THROW(yield(), Error); }

Task<void> yields(std::vector<int>& log, int id, int count) {
  for (int i = 0; i < count; ++i) {
    log.push_back(id);
    co_await yield();
  }
}

std::vector<int> order_of_five(int count) {
  std::vector<int> log;
  std::vector<Task<void>> tasks;
  for (int id = 0; id < 5; ++id) tasks.push_back(yields(log, id, count));
  sync_wait(when_all(std::move(tasks)));
  return log;
}

TEST(Executor, TheScheduleIsFirstInFirstOutAndTheSameInEveryRun) {
  const int count = 1000;  // far beyond the executor's budget between two looks at Asio
  const std::vector<int> log = order_of_five(count);
  ASSERT_EQ(log.size(), 5U * count);
  for (std::size_t i = 0; i < log.size(); ++i) ASSERT_EQ(log[i], static_cast<int>(i % 5)) << i;
  EXPECT_EQ(order_of_five(count), log);
}

TEST(Executor, TheScheduleIsTheSameOnTwoThreadsAtOnce) {
  std::vector<int> first, second;
  std::thread a([&first] { first = order_of_five(300); });
  std::thread b([&second] { second = order_of_five(300); });
  a.join();
  b.join();
  EXPECT_EQ(first, second);
}

TEST(Executor, TheQueueGrowsBeyondItsFirstCapacity) {
  std::vector<int> log;
  std::vector<Task<void>> tasks;
  for (int id = 0; id < 1000; ++id) tasks.push_back(yields(log, id, 2));
  sync_wait(when_all(std::move(tasks)));
  ASSERT_EQ(log.size(), 2000U);
  for (std::size_t i = 0; i < log.size(); ++i) ASSERT_EQ(log[i], static_cast<int>(i % 1000)) << i;
}

Task<int> yield_many(int count) {
  for (int i = 0; i < count; ++i) co_await yield();
  co_return count;
}

TEST(Executor, AMillionYieldsNeedNoStackAloneOrInPairs) {
  EXPECT_EQ(sync_wait(yield_many(kMany)), kMany);
  auto [a, b] = sync_wait(when_all(yield_many(kMany / 2), yield_many(kMany / 2)));
  EXPECT_EQ(a + b, kMany);
}

Task<int> yield_until(const bool& flag) {
  int turns = 0;
  while (!flag) {
    co_await yield();
    ++turns;
  }
  co_return turns;
}

TEST(Executor, AsioGetsItsTurnWhileTasksYield) {
  bool flag = false;
  Executor executor;
  boost::asio::post(executor.io_context(), [&flag] { flag = true; });
  EXPECT_GT(executor.run(yield_until(flag)), 0);
}

// Moves something at every look, perhaps for others, until it has been checked three times.
class Busy final : public Waiting {
 public:
  using awaitable_of_coshard = void;
  explicit Busy(bool in_order) : in_order_(in_order) {}
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> self) {
    Executor& executor = *Executor::current();
    in_order_ ? executor.wait(*this, self) : executor.wait_unordered(*this, self);
  }
  bool await_resume() const { return checks_ == 3; }
  void give_up() noexcept override {}
  Poll poll() override { return checks_ == 3 || ++looks_ == kMany ? Poll::Done : Poll::Progressed; }
  bool subscribe(Parker&) override { return false; }
  void unsubscribe(Parker&) noexcept override {}
  std::int64_t check(std::int64_t) override { return ++checks_, 0; }
  std::string describe() const override { return "busy"; }

 private:
  bool in_order_;
  int looks_ = 0, checks_ = 0;
};
Task<bool> wait_busily(bool in_order) {
  Busy busy(in_order);
  co_return co_await busy;
}

TEST(Executor, AWaitIsCheckedThoughSomethingMovesAtEveryLook) {
  EXPECT_TRUE(sync_wait(wait_busily(true)));
  EXPECT_TRUE(sync_wait(wait_busily(false)));
}

TEST(Executor, OnAContextOfTheCallerSomethingThatMovesAtEveryLookLeavesHandlersTheirTurn) {
  for (const bool in_order : {true, false}) {
    boost::asio::io_context context;
    std::vector<std::string> order;
    co_spawn(context, wait_busily(in_order),
             [&](const std::exception_ptr&, bool) { order.emplace_back("task"); });
    context.poll_one();  // begins
    boost::asio::post(context, [&] { order.emplace_back("handler"); });
    context.run();
    EXPECT_EQ(order, (std::vector<std::string>{"handler", "task"})) << in_order;
  }
}

TEST(Executor, AnExceptionOfAHandlerGivesTheRootUpAndComesOutOfRun) {
  const bool never_ends = false;
  Executor executor;
  boost::asio::post(executor.io_context(), [] { throw std::runtime_error("handler"); });
  EXPECT_THROW(executor.run(yield_until(never_ends)), std::runtime_error);
  EXPECT_EQ(executor.ready(), 0U);
  EXPECT_EQ(executor.run(who()), &executor);
}

}  // namespace
}  // namespace coshard
