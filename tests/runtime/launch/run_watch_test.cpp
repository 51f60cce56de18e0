// A rank that never ends does not keep a failure from being told.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/launch/world.h>
#include "tests/support/child.h"
#include "tests/support/ends.h"
#include "tests/support/errors.h"

namespace coshard::testing {
namespace {
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using testing::Boom;
using testing::Child;
using testing::in_child;
using testing::quick_options;

// run() with these arguments.
int run_with(std::vector<std::string> arguments, const Program& program) {
  arguments.insert(arguments.begin(), "program");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return run(static_cast<int>(argv.size()), argv.data(), program);
}

void wait_for_a_peer(World& world) {
  auto work = world.communicator()->issue(Collective());
  work.wait();
}
// In the program's own code, where nobody can interrupt it.
void be_stuck_until(const std::atomic<bool>& released) {
  const auto end = Clock::now() + 30s;  // nobody has released it
  while (!released && Clock::now() < end) std::this_thread::sleep_for(1ms);
}

Task<void> rank_1_is_stuck(World& world, const std::atomic<bool>& released) {
  if (world.rank() == 1) {
    be_stuck_until(released);
  } else {
    wait_for_a_peer(world);
  }
  co_return;
}
// Rank 1 is stuck until the failure of rank 0, whose wait for it is over, has been told.
struct StuckUntilTold {
  explicit StuckUntilTold(std::chrono::milliseconds timeout) : options(quick_options(2)) {
    options.timeout = timeout;
    options.on_failure = [this](const Failure&) {
      after = Clock::now() - begin;
      released = true;
    };
  }
  Program program() {
    return [this](World& world) { return rank_1_is_stuck(world, released); };
  }
  WorldOptions options;
  Clock::time_point begin = Clock::now();
  std::optional<Clock::duration> after;
  std::atomic<bool> released{false};
};
int run_a_stuck_rank() {
  StuckUntilTold run_of_two(100ms);
  return run(run_of_two.options, run_of_two.program());
}

TEST(StuckRank, TheFailureIsPrintedWithinTwoSecondsAndOnce) {
  const Child child = in_child(run_a_stuck_rank, 20);
  EXPECT_EQ(child.code, 1) << child;
  EXPECT_LT(child.wrote("timeout after 0.1 s").count(), 2) << child;
  const std::string text = child.text();
  EXPECT_EQ(text.find("error: "), text.rfind("error: ")) << text;
}

Task<void> rank_1_is_stuck_for_ever(World& world) {
  static const std::atomic<bool> never{false};
  return rank_1_is_stuck(world, never);
}
// The grace is ten seconds where the command line does not say it.
int run_a_rank_that_never_ends() {
  return run_with({"--ranks=2", "--timeout=0.1", "--grace=0.1"}, rank_1_is_stuck_for_ever);
}

TEST(StuckRank, RunEndsTheProcessAfterItsGraceAndNamesWhoHasNotEnded) {
  const Child child = in_child(run_a_rank_that_never_ends, 5);
  EXPECT_EQ(child.code, 1) << child;
  EXPECT_LT(child.wrote("timeout after 0.1 s").count(), 2) << child;
  EXPECT_NE(child.text().find("rank 1"), std::string::npos) << child;
}

TEST(StuckRank, RunRanksTellsOfTheFailureWhileTheRankIsStuck) {
  StuckUntilTold run_of_two(100ms);
  EXPECT_THROW(run_ranks(run_of_two.options, run_of_two.program()), Error);
  ASSERT_TRUE(run_of_two.after);
  EXPECT_GE(*run_of_two.after, 100ms);
  EXPECT_LT(*run_of_two.after, 2s);
}

// --- ranks that wait for time, or beside a server ---

Task<void> throws_at_once() {
  co_await yield();
  throw Boom();
}
Task<void> serves() {
  for (;;) co_await sleep_for(1ms);
}
Task<void> throw_beside_a_server(World& world) {
  if (world.rank() == 0) {
    Task<void> failing = throws_at_once(), server = serves();
    Task<void> both = when_all(std::move(failing), std::move(server));
    co_await std::move(both);
  }
  wait_for_a_peer(world);
}

TEST(StuckRank, AFailureBesideAServerIsTheErrorAndNotThePeersTimeout) {
  WorldOptions options = quick_options(2);
  options.timeout = 60s;
  const auto begin = Clock::now();
  EXPECT_THROW(run_ranks(options, throw_beside_a_server), Boom);
  EXPECT_LT(Clock::now() - begin, 5s);
}

}  // namespace
}  // namespace coshard::testing
