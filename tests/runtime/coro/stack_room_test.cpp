// Awaits that would leave too little stack: on threads, on fibers, and on stacks of other owners.
#include <coshard/runtime/coro/stack_room.h>

#include <gtest/gtest.h>
#include <pthread.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>

#include <coshard/runtime/coro/executor.h>
#include <coshard/runtime/error.h>
#include "runtime/coro/fiber.h"
#include "tests/support/ends.h"

namespace coshard::stack_room {
namespace {
using testing::End;
using testing::end_of;

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Deeper than any stack of these tests.
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
  on_thread(4 * kMiB, [&] { end = end_of_deep(levels); });
  EXPECT_TRUE(end.is(ErrorKind::BadInput)) << end;
  EXPECT_TRUE(end.names("ulimit -s")) << end;
  EXPECT_GT(levels, 1000);
}

TEST(StackRoom, AnAwaitThatLeavesTooLittleOfAFibersStackIsAnError) {
  int small = 0, large = 0;
  End ends[2];
  Fiber one([&] { ends[0] = end_of_deep(small); }, 2 * kMiB);
  Fiber two([&] { ends[1] = end_of_deep(large); }, 4 * kMiB);
  one.resume();
  two.resume();
  for (const End& end : ends) {
    EXPECT_TRUE(end.is(ErrorKind::BadInput)) << end;
    EXPECT_TRUE(end.names("stack_bytes")) << end;
  }
  EXPECT_TRUE(ends[0].names(std::to_string(2 * kMiB))) << ends[0];
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
