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
#include "tests/support/errors.h"
#include "tests/support/nanoseconds.h"

namespace coshard {
namespace {

using namespace std::chrono_literals;

namespace asio = boost::asio;
using testing::error_text;
using testing::kHour;
using testing::kMillisecond;

TEST(FiberThread, RunsFibersInTurnUntilAllHaveEnded) {
  FiberThread thread;
  std::string log;
  for (const char name : {'a', 'b', 'c'}) {
    thread.spawn([&log, name](Parker& parker) {
      for (int round = 0; round < 3; ++round) {
        log += name;
        parker.park(1);  // a deadline that has passed: the others go first
      }
    });
  }
  thread.run();
  EXPECT_EQ(log, "abcabcabc");
  thread.run();  // there is nothing left to do
}

// `fibers` on each of two threads; each waits for a turn of its own and hands it to its peer on the
// other thread. A wake-up that got lost would end in a timeout.
TEST(FiberThread, TwoOfThemRingEachOther) {
  constexpr int kFibers = 16;
  constexpr int kRounds = 300;
  FiberThread threads[2];
  std::vector<std::atomic<int>> turns(kFibers);
  std::vector<Parker*> parkers[2];
  const auto body = [&](int side, std::size_t i) {
    return [&, side, i](Parker& parker) {
      for (int round = side; round < kRounds; round += 2) {
        while (turns[i].load(std::memory_order_acquire) != round)
          parker.park(i % 2 == 0 ? 0 : parker.now() + kHour);
        turns[i].store(round + 1, std::memory_order_release);
        parkers[1 - side][i]->unpark();
      }
    };
  };
  for (const int side : {0, 1}) {
    for (std::size_t i = 0; i < kFibers; ++i)
      parkers[side].push_back(&threads[side].spawn(body(side, i)));
  }
  std::thread other([&] { threads[1].run(); });
  threads[0].run();
  other.join();
  for (const auto& turn : turns) EXPECT_EQ(turn.load(), kRounds);
}

TEST(FiberThread, ManyFibersParkAndRingEachOther) {
  constexpr std::size_t kMany = 1024;
  constexpr int kRounds = 100;
  FiberThread thread;
  std::vector<Parker*> parkers;
  std::vector<int> rounds(kMany, 0);
  for (std::size_t i = 0; i < kMany; ++i) {
    parkers.push_back(&thread.spawn([&, i](Parker& parker) {
      const std::size_t left = (i + kMany - 1) % kMany;
      for (int round = 0; round < kRounds; ++round) {
        ++rounds[i];
        parkers[(i + 1) % kMany]->unpark();
        while (rounds[left] <= round) parker.park(0);
      }
    }));
  }
  const std::int64_t begin = thread.now();
  thread.run();
  RecordProperty("milliseconds", static_cast<int>((thread.now() - begin) / kMillisecond));
  EXPECT_EQ(rounds, std::vector<int>(kMany, kRounds));
}

TEST(FiberThread, TheFirstExceptionIsThrownAfterTheOthersHaveGoneOn) {
  FiberThread thread;
  std::string log;
  Parker& survivor = thread.spawn([&log](Parker& parker) {
    parker.park(0);
    log += "survived";
  });
  thread.spawn([](Parker&) { throw std::runtime_error("first"); });
  thread.spawn([&survivor](Parker& parker) {
    parker.park(1);
    survivor.unpark();
    throw std::runtime_error("second");
  });
  try {
    thread.run();
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  EXPECT_EQ(log, "survived");
  thread.run();  // it is told once
}

TEST(FiberThread, HandlersSeeTheirOwnExceptionAcrossParks) {
  FiberThread thread;
  std::vector<std::string> got;
  for (const char* text : {"a", "b", "c"}) {
    thread.spawn([&got, text](Parker& parker) {
      try {
        try {
          throw std::runtime_error(text);
        } catch (...) {
          parker.park(1);
          throw;
        }
      } catch (const std::exception& error) {
        parker.park(1);
        got.emplace_back(error.what());
      }
    });
  }
  thread.run();
  EXPECT_EQ(got, (std::vector<std::string>{"a", "b", "c"}));
}

TEST(FiberThread, TellsBeforeAFiberGoesOnAndAfterItHasGoneOff) {
  FiberThread thread;
  std::vector<int> log;
  int current = -1;
  thread.on_switch([&](int fiber) {
    log.push_back(fiber);
    current = fiber;
  });
  for (const int i : {0, 1}) {
    thread.spawn([&current, i](Parker& parker) {
      EXPECT_EQ(current, i);
      parker.park(1);
      EXPECT_EQ(current, i);
    });
  }
  thread.run();
  EXPECT_EQ(log, (std::vector<int>{0, -1, 1, -1, 0, -1, 1, -1}));
}

TEST(FiberThread, AFiberMaySpawnAnother) {
  FiberThread thread;
  std::string log;
  thread.spawn([&](Parker&) {
    Parker& child = thread.spawn([&log](Parker& parker) {
      parker.park(0);
      log += "child";
    });
    child.unpark();
    log += "parent ";
  });
  thread.run();
  EXPECT_EQ(log, "parent child");
}

TEST(FiberThread, MisuseIsAnErrorThatSaysWhat) {
  FiberThread thread;
  asio::io_context foreign(1);
  EXPECT_EQ(error_text(ErrorKind::BadInput, [&thread] { thread.spawn(nullptr); }),
            "fiber thread: the function of a fiber is empty");
  Parker& first = thread.spawn([&](Parker& parker) {
    EXPECT_EQ(error_text(ErrorKind::BadInput, [&thread] { thread.run(); }),
              "fiber thread: run called inside a fiber thread on the same thread");
    EXPECT_EQ(error_text(ErrorKind::BadInput, [&] { parker.park(0, &foreign); }),
              "fiber thread: fiber 0 parks in an io_context that is not its thread's");
  });
  thread.run();
  EXPECT_EQ(error_text(ErrorKind::BadInput, [&first] { first.park(0); }),
            "a wait in place within a handler or a spawned task, on a rank that shares its thread; "
            "co_await instead");
}

}  // namespace
}  // namespace coshard
