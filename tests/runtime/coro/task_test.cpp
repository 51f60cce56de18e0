#include <coshard/runtime/coro/task.h>

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <coshard/runtime/coro/executor.h>
#include <coshard/runtime/sanitizers.h>
#include "runtime/coro/fiber.h"
#include "tests/runtime/coro/counted.h"

namespace coshard {
namespace {
using testing::Counted;

static_assert(!std::is_copy_constructible_v<Task<int>>);
static_assert(std::is_nothrow_move_constructible_v<Task<int>>);

constexpr int kManyAwaits = 1'000'000;

Task<int> value(int v) { co_return v; }
Task<void> nothing() { co_return; }

Task<void> mark(bool& started) {
  started = true;
  co_return;
}

TEST(Task, DoesNotStartBeforeItIsAwaited) {
  bool started = false;
  Task<void> task = mark(started);
  EXPECT_FALSE(started);
  sync_wait(std::move(task));
  EXPECT_TRUE(started);
}

Task<int> add(int a, int b) {
  const int x = co_await value(a);
  const int y = co_await value(b);
  co_await nothing();
  co_return x + y;
}

TEST(Task, CarriesItsValueToItsAwaiter) { EXPECT_EQ(sync_wait(add(40, 2)), 42); }

Task<std::unique_ptr<int>> boxed(int v) { co_return std::make_unique<int>(v); }
Task<int> unboxed(int v) {
  std::unique_ptr<int> box = co_await boxed(v);
  co_return *box;
}

TEST(Task, CarriesAMoveOnlyValue) { EXPECT_EQ(sync_wait(unboxed(7)), 7); }

Task<int> throws(const char* what, bool late) {
  if (late) co_await yield();
  throw std::runtime_error(what);
  co_return 0;
}
Task<std::string> caught(bool late) {
  try {
    co_await throws("from the child", late);
  } catch (const std::runtime_error& error) {
    co_return error.what();
  }
  co_return "nothing was thrown";
}

TEST(Task, CarriesAnExceptionToItsAwaiter) {
  EXPECT_EQ(sync_wait(caught(false)), "from the child");
  EXPECT_EQ(sync_wait(caught(true)), "from the child");
  EXPECT_THROW(sync_wait(throws("x", true)), std::runtime_error);
}

Task<void> await_moved_from(Task<int> task) {
  Task<int> elsewhere = std::move(task);
  co_await std::move(task);
}

TEST(Task, AwaitingAnEmptyTaskIsAnError) {
  EXPECT_THROW(sync_wait(await_moved_from(value(1))), Error);
  EXPECT_THROW(sync_wait(Task<int>()), Error);
}

Task<void> hold(testing::Counts& counts, Counted parameter) {
  const Counted local(counts);
  co_await std::suspend_always{};
}

TEST(Task, DroppedBeforeItsStartDestroysItsParametersOnce) {
  testing::Counts counts;
  {
    Task<void> task = hold(counts, Counted(counts));
    EXPECT_GT(counts.alive(), 0);
  }
  EXPECT_EQ(counts.alive(), 0);
}

TEST(Task, DroppedWhileSuspendedDestroysItsLocalsOnce) {
  testing::Counts counts;
  {
    Task<void> task = hold(counts, Counted(counts));
    task.handle().resume();
    EXPECT_FALSE(task.done());
    EXPECT_EQ(counts.alive(), 2);
  }
  EXPECT_EQ(counts.alive(), 0);
}

Task<void> parent_of_hold(testing::Counts& counts) {
  const Counted local(counts);
  const Counted parameter(counts);
  co_await hold(counts, parameter);
}

TEST(Task, DroppedWhileItsChildIsSuspendedDestroysBoth) {
  testing::Counts counts;
  {
    Task<void> task = parent_of_hold(counts);
    task.handle().resume();
    EXPECT_GE(counts.alive(), 4);
  }
  EXPECT_EQ(counts.alive(), 0);
}

Task<int> keeps(Counted parameter, bool late) {
  const Counted local = parameter;
  if (late) co_await yield();
  co_return 1;
}
Task<int> alive_after_await(testing::Counts& counts, bool late) {
  const Counted argument(counts);
  Task<int> task = keeps(argument, late);
  co_await std::move(task);
  co_return counts.alive();
}

TEST(Task, FrameIsGoneAfterTheAwaitAlthoughTheNameIsStillInScope) {
  for (bool late : {false, true}) {
    testing::Counts counts;
    EXPECT_EQ(sync_wait(alive_after_await(counts, late)), 1);
    EXPECT_EQ(counts.alive(), 0);
  }
}

Task<long> await_many(int count) {
  long sum = 0;
  for (int i = 0; i < count; ++i) sum += co_await value(1);
  co_return sum;
}

TEST(Task, AMillionAwaitsOfFinishedTasksNeedNoStack) {
  EXPECT_EQ(sync_wait(await_many(kManyAwaits)), kManyAwaits);
}

Task<int> late_value(int v) {
  co_await yield();
  co_return v;
}
Task<long> await_many_late(int count) {
  long sum = 0;
  for (int i = 0; i < count; ++i) sum += co_await late_value(1);
  co_return sum;
}

// The limit that task.h states.
Task<int> depth_of(int levels) {
  if (levels == 0) co_return 0;
  Task<int> below = depth_of(levels - 1);
  co_return 1 + co_await std::move(below);
}
TEST(Task, SixtyThousandNestedAwaitsFitIntoTheStackOfAThread) {
  if (!kCacheFrames) GTEST_SKIP() << "sanitizers need more stack";
  int got = 0;
  Fiber fiber([&got] { got = sync_wait(depth_of(60'000)); }, std::size_t{8} << 20);
  fiber.resume();
  EXPECT_EQ(got, 60'000);
}

TEST(Task, AMillionAwaitsOfYieldingTasksNeedNoStack) {
  EXPECT_EQ(sync_wait(await_many_late(kManyAwaits)), kManyAwaits);
}

// The forms that g++ 12 compiles rightly, each counted.
Task<int> takes(Counted a, std::array<int, 2> b, std::string c, std::function<int()> d) {
  co_await yield();
  co_return b[0] + b[1] + static_cast<int>(c.size()) + d();
}
Task<int> safe_forms(testing::Counts& counts) {
  Counted argument(counts);
  std::function<int()> function = [copy = Counted(counts)] { return 1; };
  const std::array<int, 2> array{1, 2};
  Task<int> named = takes(argument, array, "abc", function);
  const int first = co_await std::move(named);
  const int second = co_await takes(argument, array, std::string(100, 'x'), function);
  int third = 0;
  if (first == 7) third = co_await takes(std::move(argument), array, "", std::move(function));
  co_return first + second + third;
}

TEST(Task, TheSafeFormsOfAwaitDestroyEveryObjectOnce) {
  testing::Counts counts;
  EXPECT_EQ(sync_wait(safe_forms(counts)), 7 + 104 + 4);
  EXPECT_EQ(counts.alive(), 0);
}

TEST(Task, FramesMayBeFreedOnAnotherThreadThanTheOneThatMadeThem) {
  for (int round = 0; round < 4; ++round) {
    std::vector<Task<int>> tasks;
    std::thread maker([&tasks] {
      for (int i = 0; i < 500; ++i) tasks.push_back(value(i));
    });
    maker.join();
    std::thread user([tasks = std::move(tasks)]() mutable {
      for (std::size_t i = 0; i < tasks.size(); i += 2)
        EXPECT_EQ(sync_wait(std::move(tasks[i])), static_cast<int>(i));
      tasks.clear();
    });
    user.join();
  }
}

}  // namespace
}  // namespace coshard
