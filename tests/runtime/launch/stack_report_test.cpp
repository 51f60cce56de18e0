// Ranks that use much stack: as fibers, in a simulation, and beyond its end.
#include "runtime/launch/stack_report.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstddef>
#include <string>

#include <coshard/runtime/launch/simulate.h>
#include <coshard/runtime/launch/world.h>
#include <coshard/runtime/sanitizers.h>
#include "tests/support/child.h"
#include "tests/support/ends.h"

namespace coshard::stack_report {
namespace {
using testing::Child;
using testing::End;
using testing::ends_of;
using testing::in_child;
using testing::quick_options;

constexpr bool kSanitized = COSHARD_ASAN == 1 || COSHARD_TSAN == 1;

[[gnu::noinline]] int touch(std::size_t bytes) {
  auto* memory = static_cast<volatile char*>(__builtin_alloca(bytes));
  for (std::size_t i = 0; i < bytes; i += 512) memory[bytes - 1 - i] = 1;
  return memory[bytes - 1];
}

Task<void> touches(World&, std::size_t bytes) {
  EXPECT_GE(touch(bytes), 0);
  co_return;
}
WorldOptions sharing() {
  WorldOptions options = quick_options(2);
  options.rank_threads = 1;
  return options;
}

TEST(StackBytes, AreAsManyForAFiberAsForAThread) {
  const auto program = [](World& world) { return touches(world, 5'000'000); };
  run_ranks(quick_options(2), program);
  run_ranks(sharing(), program);
  simulate(quick_options(2), program, 1);
}

TEST(StackBytes, AreTheWorldsOwnNumber) {
  WorldOptions options = sharing();
  options.stack_bytes = std::size_t{64} << 20;
  run_ranks(options, [](World& world) { return touches(world, 50'000'000); });
}

Task<int> deep(int& levels) {
  if (++levels == 100'000'000) co_return 0;
  Task<int> below = deep(levels);
  const int got = co_await std::move(below);
  co_return got + 1;
}
Task<void> goes_deep(World&) {
  int levels = 0;
  Task<int> all = deep(levels);
  co_await std::move(all);
}
TEST(StackBytes, ThatRunOutAreAnErrorOfTheRank) {
  WorldOptions options = sharing();
  options.stack_bytes = std::size_t{1} << 20;
  for (const End& end : ends_of(options, goes_deep)) {
    EXPECT_TRUE(end.is(ErrorKind::BadInput)) << end;
    EXPECT_TRUE(end.names("stack_bytes")) << end;
    EXPECT_TRUE(end.names(std::to_string(options.stack_bytes))) << end;
  }
}

int of_many_ranks() {
  rlimit limit{};
  ::getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = std::size_t{2} << 30;
  ::setrlimit(RLIMIT_AS, &limit);
  WorldOptions options = sharing();
  options.ranks = 512;
  return run(options, [](World& world) { return touches(world, 1000); });
}
TEST(StackBytes, ThatDoNotFitIntoTheAddressSpaceAreAnErrorThatNamesThem) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs the address space";
  const Child child = in_child(of_many_ranks, 30);
  EXPECT_EQ(child.code, 2) << child;
  EXPECT_NE(child.text().find("stack_bytes"), std::string::npos) << child;
  EXPECT_NE(child.text().find("ulimit -v"), std::string::npos) << child;
}

int overflow(bool reported, int rank_threads) {
  WorldOptions options = quick_options(2);
  options.rank_threads = rank_threads;
  options.report_stack_overflow = reported;
  run_ranks(options,
            [](World& world) { return touches(world, world.rank() == 1 ? 40'000'000 : 1); });
  return 0;
}
TEST(StackReport, NamesTheRankAndTheRemedyIfAskedFor) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer handles SIGSEGV itself";
  const Child fiber = in_child([] { return overflow(true, 1); }, 30);
  EXPECT_NE(fiber.text().find("rank 1: stack overflow"), std::string::npos) << fiber;
  EXPECT_NE(fiber.text().find("stack_bytes"), std::string::npos) << fiber;
  const Child thread = in_child([] { return overflow(true, 0); }, 30);
  EXPECT_NE(thread.text().find("rank 1: stack overflow"), std::string::npos) << thread;
  EXPECT_NE(thread.text().find("ulimit -s"), std::string::npos) << thread;
  const Child silent = in_child([] { return overflow(false, 1); }, 30);
  EXPECT_EQ(silent.text().find("rank 1: stack overflow"), std::string::npos) << silent;
  if (kSanitized) return;  // they end the process in a way of their own
  for (const Child* child : {&fiber, &thread, &silent}) EXPECT_EQ(child->signal, SIGSEGV) << *child;
}

void nothing(int) {}
TEST(StackReport, LeavesTheSignalAsItWas) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer handles SIGSEGV itself";
  struct sigaction mine {
  }, after{}, before{};
  mine.sa_handler = nothing;
  ASSERT_EQ(::sigaction(SIGSEGV, &mine, &before), 0);
  WorldOptions options = sharing();
  options.report_stack_overflow = true;
  run_ranks(options, [](World& world) { return touches(world, 1000); });
  ::sigaction(SIGSEGV, nullptr, &after);
  EXPECT_EQ(after.sa_handler, nothing);
  ::sigaction(SIGSEGV, &before, nullptr);
}

}  // namespace
}  // namespace coshard::stack_report
