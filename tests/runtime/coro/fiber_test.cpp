#include "runtime/coro/fiber.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <coshard/runtime/error.h>
#include "tests/support/errors.h"

namespace coshard {
namespace {
using testing::error_text;

// In a handler, goes off and on, and throws again what it handles.
std::string rethrown(const std::string& text) {
  try {
    try {
      throw std::runtime_error(text);
    } catch (...) {
      Fiber::suspend();
      throw;
    }
  } catch (const std::runtime_error& error) {
    Fiber::suspend();
    EXPECT_NE(std::current_exception(), nullptr);
    return error.what();
  }
}

// Goes off while it is destroyed.
struct SuspendsAsItGoes {
  std::vector<int>& log;
  ~SuspendsAsItGoes() {
    log.push_back(std::uncaught_exceptions());
    Fiber::suspend();
    log.push_back(std::uncaught_exceptions());
  }
};

// Touches `levels` x 4 KiB of its stack, on which it goes off and on at the bottom.
std::size_t deep(int levels) {
  std::array<volatile char, 4096> page;
  page[0] = static_cast<char>(levels);
  if (levels == 0) Fiber::suspend();
  const std::size_t below = levels > 0 ? deep(levels - 1) : 0;
  return below + static_cast<std::size_t>(page[0] == static_cast<char>(levels));
}

TEST(Fiber, RunsFromResumeToSuspendAndOnToItsEnd) {
  std::vector<int> log;
  Fiber fiber([&log] {
    log.push_back(1);
    Fiber::suspend();
    log.push_back(3);
  });
  EXPECT_TRUE(log.empty());
  fiber.resume();
  EXPECT_FALSE(fiber.done());
  log.push_back(2);
  fiber.resume();
  EXPECT_TRUE(fiber.done());
  EXPECT_EQ(log, (std::vector<int>{1, 2, 3}));
}

TEST(Fiber, IsCurrentWhileItRunsAndOnlyThen) {
  Fiber* seen = nullptr;
  Fiber fiber([&seen] { seen = Fiber::current(); });
  EXPECT_EQ(Fiber::current(), nullptr);
  fiber.resume();
  EXPECT_EQ(seen, &fiber);
  EXPECT_EQ(Fiber::current(), nullptr);
}

TEST(Fiber, ResumeThrowsWhatEndedTheBody) {
  Fiber fiber([] {
    Fiber::suspend();
    throw std::runtime_error("body");
  });
  fiber.resume();
  try {
    fiber.resume();
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "body");
  }
  EXPECT_TRUE(fiber.done());
}

TEST(Fiber, MisuseIsAnErrorThatSaysWhat) {
  EXPECT_EQ(error_text(ErrorKind::BadInput, [] { Fiber(nullptr); }),
            "fiber: its function is empty");
  EXPECT_EQ(error_text(ErrorKind::BadInput, [] { Fiber::suspend(); }),
            "fiber: suspend called outside a fiber");
  EXPECT_EQ(error_text(ErrorKind::BadInput, [] { Fiber([] {}, 100); }),
            "fiber: stack size of 100 bytes is too small or too large; it needs at least 16384");
  const std::string none =
      error_text(ErrorKind::BadInput, [] { Fiber([] {}, std::size_t{1} << 60); });
  for (const char* part : {"1152921504606846976 bytes", "stack_bytes", "ulimit -v"})
    EXPECT_NE(none.find(part), std::string::npos) << none;
  Fiber self([&self] { self.resume(); });
  EXPECT_EQ(error_text(ErrorKind::BadInput, [&self] { self.resume(); }),
            "fiber: resumed while it is running");
  EXPECT_EQ(error_text(ErrorKind::BadInput, [&self] { self.resume(); }),
            "fiber: resumed after it finished");
}

TEST(Fiber, NeverChangesItsThread) {
  Fiber fiber([] { Fiber::suspend(); });
  fiber.resume();
  std::thread other([&fiber] {
    EXPECT_EQ(error_text(ErrorKind::BadInput, [&fiber] { fiber.resume(); }),
              "fiber: resumed on a thread other than its own");
  });
  other.join();
  fiber.resume();
  EXPECT_TRUE(fiber.done());
}

TEST(Fiber, ThrowsAgainItsOwnExceptionHoweverHandlersInterleave) {
  std::array<std::string, 2> got;
  Fiber a([&got] { got[0] = rethrown("a"); });
  Fiber b([&got] { got[1] = rethrown("b"); });
  try {
    throw std::runtime_error("thread");
  } catch (...) {
    for (Fiber* fiber : {&a, &b, &a, &b, &a, &b}) fiber->resume();
    EXPECT_TRUE(a.done() && b.done());
    EXPECT_THROW(throw, std::runtime_error);
  }
  EXPECT_EQ(got, (std::array<std::string, 2>{"a", "b"}));
  EXPECT_EQ(std::current_exception(), nullptr);
}

TEST(Fiber, CountsOnlyItsOwnUncaughtExceptions) {
  std::vector<int> unwinding;
  std::vector<int> calm;
  Fiber throws([&unwinding] {
    try {
      const SuspendsAsItGoes guard{unwinding};
      throw std::runtime_error("unwinds");
    } catch (const std::runtime_error&) {
      unwinding.push_back(std::uncaught_exceptions());
    }
  });
  Fiber does_not([&calm] { const SuspendsAsItGoes guard{calm}; });
  for (Fiber* fiber : {&throws, &does_not}) fiber->resume();
  EXPECT_EQ(std::uncaught_exceptions(), 0);
  for (Fiber* fiber : {&does_not, &throws}) fiber->resume();
  EXPECT_EQ(unwinding, (std::vector<int>{1, 1, 0}));
  EXPECT_EQ(calm, (std::vector<int>{0, 0}));
}

TEST(Fiber, MayBeResumedWhileItsThreadUnwinds) {
  int seen = -1;
  Fiber fiber([&seen] { seen = std::uncaught_exceptions(); });
  struct Resumes {
    Fiber& fiber;
    ~Resumes() { fiber.resume(); }
  };
  EXPECT_THROW(
      {
        const Resumes guard{fiber};
        throw std::runtime_error("thread");
      },
      std::runtime_error);
  EXPECT_EQ(seen, 0);
}

TEST(Fiber, UsesAsMuchStackAsAThread) {
  std::size_t levels = 0;
  for (int round = 0; round < 3; ++round) {  // the second and third on a stack that was kept
    Fiber fiber([&levels] { levels = deep(1000); });
    while (!fiber.done()) fiber.resume();
    EXPECT_EQ(levels, 1001U);
  }
}

TEST(Fiber, TakesAStackOfAnySize) {
  std::size_t levels = 0;
  Fiber fiber([&levels] { levels = deep(4000); }, std::size_t{32} << 20);
  while (!fiber.done()) fiber.resume();
  EXPECT_EQ(levels, 4001U);
}

TEST(Fiber, DestroyedBeforeItIsDoneItUnwindsWithAnError) {
  std::vector<std::string> log;
  const auto counted = std::make_shared<int>(0);
  {
    Fiber fiber([&log, counted] {
      const std::shared_ptr<int> on_the_stack = counted;
      log.push_back(error_text(ErrorKind::Cancelled, [] { Fiber::suspend(); }));
      log.push_back(error_text(ErrorKind::Cancelled, [] { Fiber::suspend(); }));
      Fiber::suspend();
      log.emplace_back("went on");
    });
    fiber.resume();
    EXPECT_EQ(counted.use_count(), 3);
  }
  EXPECT_EQ(counted.use_count(), 1);
  const std::string text = "fiber: abandoned before it finished";
  EXPECT_EQ(log, (std::vector<std::string>{text, text}));
  EXPECT_EQ(Fiber::current(), nullptr);
}

TEST(Fiber, DestroyedBeforeItBeganItRunsNothing) {
  bool ran = false;
  {
    Fiber fiber([&ran] { ran = true; });
  }
  EXPECT_FALSE(ran);
}

TEST(Fiber, RunsAnotherOne) {
  std::vector<int> log;
  Fiber inner([&log] {
    log.push_back(2);
    Fiber::suspend();
    log.push_back(4);
  });
  Fiber outer([&] {
    log.push_back(1);
    inner.resume();
    log.push_back(3);
    Fiber::suspend();
    inner.resume();
  });
  while (!outer.done()) outer.resume();
  EXPECT_TRUE(inner.done());
  EXPECT_EQ(log, (std::vector<int>{1, 2, 3, 4}));
}

TEST(Fiber, ManyLiveAtOnceOnStacksOfTheirOwn) {
  constexpr std::size_t kMany = 1024;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::size_t sum = 0;
  for (std::size_t i = 0; i < kMany; ++i) {
    fibers.push_back(std::make_unique<Fiber>([&sum, i] {
      for (int round = 0; round < 3; ++round) {
        sum += i;
        Fiber::suspend();
      }
    }));
  }
  for (int round = 0; round < 4; ++round) {
    for (auto& fiber : fibers) fiber->resume();
  }
  EXPECT_EQ(sum, 3 * kMany * (kMany - 1) / 2);
  for (auto& fiber : fibers) EXPECT_TRUE(fiber->done());
}

}  // namespace
}  // namespace coshard
