#include <gtest/gtest.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <coshard/runtime/error.h>
#include "runtime/coro/fiber_thread.h"
#include "tests/support/errors.h"
#include "tests/support/nanoseconds.h"

namespace coshard {
namespace {
using namespace std::chrono_literals;
namespace asio = boost::asio;
using testing::error_text;
using testing::kHour;
using testing::kMillisecond;

// Sleeps in the thread's io_context until `ready`.
void sleep_until(Parker& parker, FiberThread& thread, const bool& ready) {
  while (!ready) parker.park(0, &thread.io_context());
}

TEST(FiberThreadAsio, TimersOfSeveralFibersFireWhileOthersRunAndWhileNoneCan) {
  FiberThread thread;
  std::string log;
  for (const int late : {2, 1}) {
    thread.spawn([&, late](Parker& parker) {
      asio::steady_timer timer(thread.io_context(), late * 5ms);
      bool fired = false;
      timer.async_wait([&](const boost::system::error_code&) {
        fired = true;
        log += std::to_string(late);
      });
      sleep_until(parker, thread, fired);
    });
  }
  thread.spawn([&log](Parker& parker) {
    while (log.empty()) parker.park(1);  // can always run: polling alone has to do
  });
  thread.run();
  EXPECT_EQ(log, "12");
}

TEST(FiberThreadAsio, APostFromAnotherThreadIsRunUnderAWorkGuard) {
  FiberThread thread;
  bool ran = false;
  std::thread other;
  thread.spawn([&](Parker& parker) {
    const auto work = asio::make_work_guard(thread.io_context());
    other = std::thread([&] {
      std::this_thread::sleep_for(5ms);
      asio::post(thread.io_context(), [&ran] { ran = true; });
    });
    sleep_until(parker, thread, ran);
  });
  thread.run();
  other.join();
}

TEST(FiberThreadAsio, RingsAndDeadlinesEndASleepThere) {
  FiberThread thread;
  const auto work = asio::make_work_guard(thread.io_context());
  Parker& woken = thread.spawn([&](Parker& parker) { parker.park(0); });
  thread.spawn([](Parker& parker) {
    const std::int64_t deadline = parker.now() + 3 * kMillisecond;
    while (parker.now() < deadline) parker.park(deadline);
  });
  std::thread other([&woken] {
    std::this_thread::sleep_for(6ms);
    woken.unpark();
  });
  thread.run();
  other.join();
}

TEST(FiberThreadAsio, WhatAHandlerThrowsLeavesTheParkOfAFiberThatSleepsThere) {
  FiberThread thread;
  std::string log;
  const bool never = false;
  thread.spawn([&](Parker& parker) {
    asio::post(thread.io_context(), [] { throw std::runtime_error("handler"); });
    try {
      sleep_until(parker, thread, never);
    } catch (const std::runtime_error& error) {
      log = error.what();
    }
  });
  thread.run();
  EXPECT_EQ(log, "handler");
  thread.spawn([&](Parker& parker) {
    asio::post(thread.io_context(), [] { throw std::runtime_error("nobody's"); });
    parker.park(parker.now() + kMillisecond);
  });
  EXPECT_THROW(thread.run(), std::runtime_error);
}

// A simulation: draws from a seed.
class DrawnOrder : public FiberPolicy {
 public:
  explicit DrawnOrder(std::uint64_t seed) : state_(seed * 2 + 1) {}
  std::size_t pick(std::size_t runnable) override {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return (state_ >> 33) % runnable;
  }
  bool virtual_time() const override { return true; }

 private:
  std::uint64_t state_;
};

TEST(FiberThreadSimulation, VirtualTimeJumpsFromDeadlineToDeadline) {
  DrawnOrder policy(1);
  FiberThread thread(&policy);
  const std::int64_t begin = thread.now();
  std::vector<std::int64_t> times;
  for (const std::int64_t hours : {3, 1, 2}) {
    thread.spawn([&times, begin, hours](Parker& parker) {
      parker.park(begin + hours * kHour);
      times.push_back(parker.now() - begin);
      parker.park(parker.now() + 10 * kHour);
      times.push_back(parker.now() - begin);
    });
  }
  thread.run();
  std::vector<std::int64_t> expected;
  for (const std::int64_t hours : {1, 2, 3, 11, 12, 13}) expected.push_back(hours * kHour);
  EXPECT_EQ(times, expected);
}

std::string simulated(std::uint64_t seed) {
  DrawnOrder policy(seed);
  FiberThread thread(&policy);
  std::string log;
  std::vector<Parker*> parkers;
  for (std::size_t i = 0; i < 5; ++i) {
    parkers.push_back(&thread.spawn([&, i](Parker& parker) {
      for (std::size_t round = 0; round < 6; ++round) {
        log += static_cast<char>('a' + i);
        parkers[(i + round) % 5]->unpark();
        parker.park(parker.now() + static_cast<std::int64_t>((i * 7 + round * 3) % 5));
      }
      log += str_cat(parker.now(), ' ');
    }));
  }
  thread.run();
  return log;
}

TEST(FiberThreadSimulation, TheSameSeedGivesTheSameInterleaving) {
  int differ = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const std::string log = simulated(seed);
    EXPECT_EQ(log, simulated(seed)) << "seed " << seed;
    differ += static_cast<int>(log != simulated(seed + 1));
  }
  EXPECT_GE(differ, 45);
}

TEST(FiberThreadSimulation, AStandstillIsAnErrorAndTheFibersUnwind) {
  DrawnOrder policy(1);
  FiberThread thread(&policy);
  int unwound = 0;
  for (int i = 0; i < 3; ++i) {
    thread.spawn([&unwound, i](Parker& parker) {
      if (i == 1) return;
      const std::string text = error_text(ErrorKind::Cancelled, [&parker] { parker.park(0); });
      EXPECT_EQ(text, "fiber: abandoned before it finished");
      ++unwound;
      parker.park(1);
    });
  }
  EXPECT_EQ(error_text(ErrorKind::BadInput, [&thread] { thread.run(); }),
            "fiber thread: deadlock: 2 of 3 fibers sleep and nothing can wake them");
  EXPECT_EQ(unwound, 2);
  thread.spawn([&unwound](Parker& parker) {
    parker.park(parker.now() + kHour);
    ++unwound;
  });
  thread.run();  // as ever
  EXPECT_EQ(unwound, 3);
}

TEST(FiberThreadSimulation, AtAStandstillTheHookMayRing) {
  DrawnOrder policy(1);
  FiberThread thread(&policy);
  bool woken = false;
  int told = 0;
  Parker& waiter_state = thread.spawn([&woken](Parker& parker) {
    while (!woken) parker.park(0);
    parker.park(0);
  });
  thread.on_stuck([&] {
    ++told;
    woken = true;
    waiter_state.unpark();
  });
  EXPECT_EQ(error_text(ErrorKind::BadInput, [&thread] { thread.run(); }),
            "fiber thread: deadlock: 1 of 1 fibers sleep and nothing can wake them");
  EXPECT_EQ(told, 1);
}

TEST(FiberThreadSimulation, AnExceptionOfABodyComesBeforeTheStandstillItCaused) {
  DrawnOrder policy(1);
  FiberThread thread(&policy);
  thread.spawn([](Parker& parker) { parker.park(0); });
  thread.spawn([](Parker&) { throw std::runtime_error("cause"); });
  EXPECT_THROW(thread.run(), std::runtime_error);
}

struct PicksTooFar : FiberPolicy {
  std::size_t pick(std::size_t runnable) override { return runnable; }
  bool virtual_time() const override { return false; }
};

TEST(FiberThreadSimulation, APickOfNobodyIsAnErrorAndNobodyBegins) {
  PicksTooFar policy;
  FiberThread thread(&policy);
  const auto held = std::make_shared<int>(0);
  thread.spawn([held](Parker&) { ++*held; });
  EXPECT_EQ(error_text(ErrorKind::BadInput, [&thread] { thread.run(); }),
            "fiber thread: the policy picked 1 of 1 runnable fibers");
  EXPECT_EQ(*held, 0);
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace coshard
