// Awaits that would leave too little stack: on threads, on fibers, and on stacks of other owners.
#include <coshard/runtime/coro/stack_room.h>

#include <gtest/gtest.h>
#include <pthread.h>

#include <chrono>
#include <coroutine>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/executor.h>
#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/error.h>
#include "runtime/coro/fiber.h"
#include "tests/support/ends.h"

namespace coshard::stack_room {
namespace {
using testing::End;
using testing::end_of;

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Deeper than any stack of these tests. ThreadSanitizer keeps 65,536 calls of a stack, and writes
// beyond them unchecked: 2 MiB hold 25,000 levels.
Task<int> deep(int& levels) {
  if (++levels == 100'000'000) co_return 0;
  Task<int> below = deep(levels);
  const int got = co_await std::move(below);
  co_return got + 1;
}
End end_of_deep(int& levels) {
  try {
    sync_wait(deep(levels));
  } catch (...) {
    return end_of(std::current_exception());
  }
  return {};
}

void on_thread(std::size_t stack_bytes, std::function<void()> work) {
  pthread_attr_t wanted;
  ASSERT_EQ(::pthread_attr_init(&wanted), 0);
  ASSERT_EQ(::pthread_attr_setstacksize(&wanted, stack_bytes), 0);
  pthread_t thread;
  const auto run = [](void* all) -> void* {
    (*static_cast<std::function<void()>*>(all))();
    return nullptr;
  };
  ASSERT_EQ(::pthread_create(&thread, &wanted, run, &work), 0);
  ::pthread_join(thread, nullptr);
  ::pthread_attr_destroy(&wanted);
}

TEST(StackRoom, AnAwaitThatLeavesTooLittleOfAThreadsStackIsAnError) {
  int levels = 0;
  End end;
  on_thread(kMiB, [&] { end = end_of_deep(levels); });
  EXPECT_TRUE(end.is(ErrorKind::BadInput)) << end;
  EXPECT_TRUE(end.names("ulimit -s")) << end;
  EXPECT_GT(levels, 1000);
}

TEST(StackRoom, AnAwaitThatLeavesTooLittleOfAFibersStackIsAnError) {
  int small = 0, large = 0;
  End ends[2];
  Fiber one([&] { ends[0] = end_of_deep(small); }, kMiB);
  Fiber two([&] { ends[1] = end_of_deep(large); }, 2 * kMiB);
  one.resume();
  two.resume();
  for (const End& end : ends) {
    EXPECT_TRUE(end.is(ErrorKind::BadInput)) << end;
    EXPECT_TRUE(end.names("stack_bytes")) << end;
  }
  EXPECT_TRUE(ends[0].names(std::to_string(kMiB))) << ends[0];
  EXPECT_GT(small, 1000);
  EXPECT_GT(large, 3 * small / 2);
}

TEST(StackRoom, IsThatOfTheStackThatRunsAfterASwitch) {
  StackRoom::know();
  const std::uintptr_t own = StackRoom::current().bottom;
  std::uintptr_t inside[2]{};
  Fiber fiber([&] {
    inside[0] = StackRoom::current().bottom;
    Fiber::suspend();
    inside[1] = StackRoom::current().bottom;
  });
  fiber.resume();
  EXPECT_EQ(StackRoom::current().bottom, own);
  fiber.resume();
  EXPECT_EQ(StackRoom::current().bottom, own);
  EXPECT_NE(inside[0], own);
  EXPECT_EQ(inside[1], inside[0]);
}

// Tasks that hold one another, more of them than any stack of these tests could destroy in turn.
constexpr int kHeld = 100'000;

Task<void> after(Task<void> before) {
  if (before) co_await std::move(before);
}
Task<void> held_by_one_another(int count = kHeld) {
  Task<void> task = after({});
  for (int i = 0; i < count; ++i) task = after(std::move(task));
  return task;
}
void destroy_unstarted() {
  const Task<void> task = held_by_one_another();
  EXPECT_FALSE(task.done());
}
void await_them(End& end) {
  try {
    sync_wait(held_by_one_another());
  } catch (...) {
    end = end_of(std::current_exception());
  }
}
// None uses the stack of another: each is awaited from the queue.
Task<void> yields_then(Task<void> before) {
  co_await yield();
  if (before) co_await std::move(before);
}
Task<void> suspended(int levels) {
  co_await yield();
  if (levels == 0) {
    co_await std::suspend_always();  // for ever
    co_return;
  }
  Task<void> below = suspended(levels - 1);
  co_await std::move(below);
}
Task<void> nested(int levels, bool fails) {
  if (levels == 0) {
    if (fails) throw std::runtime_error("boom");
    co_return;
  }
  Task<void> below = nested(levels - 1, fails), beside = yields_then({});
  Task<void> both = when_all(std::move(below), std::move(beside));
  co_await std::move(both);
}
Task<void> nested_and_asleep(int levels, bool& asleep) {
  if (levels == 0) {
    asleep = true;
    co_await sleep_for(std::chrono::hours(1));
    co_return;
  }
  std::vector<Task<void>> tasks;
  tasks.push_back(nested_and_asleep(levels - 1, asleep));
  Task<void> all = when_all(std::move(tasks));
  co_await std::move(all);
}
Task<void> fails_once(const bool& asleep) {
  while (!asleep) co_await yield();
  throw std::runtime_error("boom");
}
Task<void> cancelled_when_asleep(int levels) {
  bool asleep = false;
  Task<void> sleeps = nested_and_asleep(levels, asleep), fails = fails_once(asleep);
  Task<void> both = when_all(std::move(sleeps), std::move(fails));
  co_await std::move(both);
}

void many_hold_one_another() {
  if (kCacheFrames) destroy_unstarted();  // else the stack is known from the first executor on
  End end;
  await_them(end);
  EXPECT_TRUE(end.is(ErrorKind::BadInput)) << end;
  destroy_unstarted();
  end = {};
  try {
    sync_wait(suspended(kHeld));
  } catch (...) {
    end = end_of(std::current_exception());
  }
  EXPECT_TRUE(end.is(ErrorKind::BadInput)) << end;  // it waits for nothing
  sync_wait(nested(20'000, false));
  EXPECT_THROW(sync_wait(nested(20'000, true)), std::runtime_error);
  EXPECT_THROW(sync_wait(cancelled_when_asleep(20'000)), std::runtime_error);
}

TEST(StackRoom, TasksThatHoldOneAnotherAreDestroyedHoweverManyTheyAre) {
  on_thread(kMiB, many_hold_one_another);
  Fiber fiber(many_hold_one_another, kMiB);
  fiber.resume();
  EXPECT_TRUE(fiber.done());
}

TEST(StackRoom, ACallOnAnotherStackReturnsAndThrows) {
  StackRoom::know();
  const StackPlace own = StackRoom::current();
  std::uintptr_t inside = 0;
  EXPECT_TRUE(StackRoom::on_another([&] { inside = StackRoom::current().bottom; }));
  EXPECT_NE(inside, own.bottom);
  EXPECT_EQ(StackRoom::current().bottom, own.bottom);
  EXPECT_THROW(StackRoom::on_another([] { throw std::runtime_error("boom"); }), std::runtime_error);
  EXPECT_EQ(StackRoom::current().bottom, own.bottom);
}

// What waits on the other stack lets the fiber wait that called it.
TEST(StackRoom, ACallOnAnotherStackMaySuspendItsFiber) {
  std::vector<int> steps;
  Fiber fiber([&] {
    StackRoom::on_another([&] {
      steps.push_back(1);
      Fiber::suspend();
      steps.push_back(3);
    });
    steps.push_back(4);
  });
  fiber.resume();
  steps.push_back(2);
  EXPECT_FALSE(fiber.done());
  fiber.resume();
  EXPECT_TRUE(fiber.done());
  EXPECT_EQ(steps, (std::vector<int>{1, 2, 3, 4}));
}

Task<int> shallow() { co_return 3; }

// A thread that knows only its own stack runs on another.
TEST(StackRoom, NothingIsKnownOfAStackOfAnotherOwner) {
  int got = 0;
  StackRoom::know();
  const StackPlace own = StackRoom::current();
  Fiber fiber([&] {
    const StackPlace fibers = StackRoom::exchange(own);
    got = sync_wait(shallow());
    StackRoom::exchange(fibers);
  });
  fiber.resume();
  EXPECT_EQ(got, 3);
}

}  // namespace
}  // namespace coshard::stack_room
