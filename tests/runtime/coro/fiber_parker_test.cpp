// Parking of a fiber: wakes, deadlines, and who goes on first.
#include "runtime/coro/fiber_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <coshard/runtime/error.h>
#include "tests/support/nanoseconds.h"

namespace coshard {
namespace {

using namespace std::chrono_literals;
using testing::kHour;
using testing::kMillisecond;

TEST(FiberThread, ARingBeforeParkMakesItReturnAtOnce) {
  FiberThread thread;
  std::string log;
  Parker& first = thread.spawn([&log](Parker& parker) {
    parker.park(0);
    parker.unpark();
    parker.unpark();
    parker.park(0);
    log += 'a';
    EXPECT_TRUE(parker.shares_its_thread());
  });
  thread.spawn([&log](Parker&) { log += 'b'; });
  first.unpark();  // before it has begun
  thread.run();
  EXPECT_EQ(log, "ab");
}

TEST(FiberThread, WhoIsRungFirstRunsFirst) {
  FiberThread thread;
  std::string log;
  std::vector<Parker*> sleepers;
  for (const char name : {'a', 'b', 'c'}) {
    sleepers.push_back(&thread.spawn([&log, name](Parker& parker) {
      parker.park(0);
      log += name;
    }));
  }
  thread.spawn([&sleepers](Parker&) {
    for (const int i : {2, 0, 2, 1, 0}) sleepers[static_cast<std::size_t>(i)]->unpark();
  });
  thread.run();
  EXPECT_EQ(log, "cab");
}

TEST(FiberThread, DeadlinesWakeInTheOrderOfTime) {
  FiberThread thread;
  std::string log;
  const std::int64_t begin = thread.now();
  for (const int late : {3, 1, 2, 1}) {
    thread.spawn([&log, begin, late](Parker& parker) {
      const std::int64_t deadline = begin + (5 + 5 * late) * kMillisecond;
      while (parker.now() < deadline) parker.park(deadline);
      log += std::to_string(late);
    });
  }
  thread.run();
  EXPECT_EQ(log, "1123");
  EXPECT_GE(thread.now() - begin, 20 * kMillisecond);
}

TEST(FiberThread, ARingEndsASleepBeforeItsDeadline) {
  FiberThread thread;
  const std::int64_t begin = thread.now();
  Parker& waiter_state = thread.spawn([](Parker& parker) {
    for (int i = 0; i < 2; ++i) parker.park(parker.now() + kHour);
  });
  thread.spawn([&waiter_state](Parker& parker) {
    for (int i = 0; i < 2; ++i) {
      waiter_state.unpark();
      parker.park(1);
    }
  });
  thread.run();
  EXPECT_LT(thread.now() - begin, kHour);
}

TEST(FiberThread, IsWokenByAnotherThread) {
  FiberThread thread;
  int value = 0;
  Parker& waiter_state = thread.spawn([&value](Parker& parker) {
    parker.park(0);
    EXPECT_EQ(value, 7);
  });
  std::thread other([&] {
    std::this_thread::sleep_for(5ms);
    value = 7;
    waiter_state.unpark();
  });
  thread.run();
  other.join();
}

// Rings that race with deadlines: the fiber is runnable once, whoever comes first.
TEST(FiberThread, ARingThatComesWithTheDeadlineWakesOnce) {
  FiberThread thread;
  std::atomic<bool> over{false};
  Parker& waiter_state = thread.spawn([&over](Parker& parker) {
    for (int i = 0; i < 2000; ++i) parker.park(parker.now() + 20'000);
    over = true;
  });
  std::thread other([&] {
    while (!over) waiter_state.unpark();
  });
  thread.run();
  other.join();
}

}  // namespace
}  // namespace coshard
