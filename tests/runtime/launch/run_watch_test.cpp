// A rank that never ends does not keep a failure from being told.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
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

namespace coshard::test {
namespace {
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using testing::Boom;
using testing::Child;
using testing::End;
using testing::end_of;
using testing::in_child;
using testing::quick_options;

// run() with these arguments.
int run_with(std::vector<std::string> arguments, const Program& program) {
  arguments.insert(arguments.begin(), "program");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return run(static_cast<int>(argv.size()), argv.data(), program);
}

// Sets what options have of these.
template <class Options>
void set_grace(Options& options, std::chrono::milliseconds grace) {
  if constexpr (requires { options.grace = grace; }) options.grace = grace;
}
// `tell` is called with whatever the failure is told as; false: nobody can be told.
template <class Options, class Tell>
bool set_on_failure(Options& options, Tell tell) {
  if constexpr (requires { options.on_failure = tell; }) {
    options.on_failure = tell;
    return true;
  }
  return false;
}

void wait_for_a_peer(World& world) {
  auto work = world.communicator()->issue(Collective());
  work.wait();
}
// In the program's own code, where nobody can interrupt it.
void be_stuck(std::chrono::milliseconds duration) {
  const auto end = Clock::now() + duration;
  while (Clock::now() < end) std::this_thread::sleep_for(1ms);
}

Task<void> rank_1_is_stuck_for_a_while(World& world) {
  if (world.rank() == 1) {
    be_stuck(3500ms);
  } else {
    wait_for_a_peer(world);
  }
  co_return;
}
int run_a_stuck_rank() {
  return run_with({"--ranks=2", "--timeout=0.5"}, rank_1_is_stuck_for_a_while);
}

TEST(StuckRank, TheFailureIsPrintedWithinTwoSecondsAndOnce) {
  const Child child = in_child(run_a_stuck_rank, 6);
  EXPECT_EQ(child.code, 1) << child;
  EXPECT_LT(child.wrote("timeout after 0.5 s").count(), 2) << child;
  const std::string text = child.text();
  EXPECT_EQ(text.find("error: "), text.rfind("error: ")) << text;
}

Task<void> rank_1_is_stuck_for_ever(World& world) {
  if (world.rank() == 1) {
    for (;;) be_stuck(1h);
  } else {
    wait_for_a_peer(world);
  }
  co_return;
}
// The grace is ten seconds where the command line does not say it.
int run_a_rank_that_never_ends() {
  return run_with({"--ranks=2", "--timeout=0.3", "--grace=1"}, rank_1_is_stuck_for_ever);
}

TEST(StuckRank, RunEndsTheProcessAfterItsGraceAndNamesWhoHasNotEnded) {
  const Child child = in_child(run_a_rank_that_never_ends, 5);
  EXPECT_EQ(child.code, 1) << child;
  EXPECT_LT(child.wrote("timeout after 0.3 s").count(), 2) << child;
  EXPECT_NE(child.text().find("rank 1"), std::string::npos) << child;
}

TEST(StuckRank, RunRanksTellsOfTheFailureWhileTheRankIsStuck) {
  WorldOptions options = quick_options(2);
  options.timeout = 300ms;
  set_grace(options, 1000ms);
  std::atomic<std::int64_t> told_ms{-1};
  const auto begin = Clock::now();
  const bool tells = set_on_failure(options, [&](const auto&...) {
    const auto after = Clock::now() - begin;
    std::int64_t never = -1;
    told_ms.compare_exchange_strong(
        never, std::chrono::duration_cast<std::chrono::milliseconds>(after).count());
  });
  EXPECT_TRUE(tells) << "WorldOptions has no on_failure";
  EXPECT_THROW(run_ranks(options, rank_1_is_stuck_for_a_while), Error);
  EXPECT_GE(told_ms, 300);
  EXPECT_LT(told_ms, 2000);
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
  const auto begin = Clock::now();
  EXPECT_THROW(run_ranks(quick_options(2), throw_beside_a_server), Boom);
  EXPECT_LT(Clock::now() - begin, 1s);
}

}  // namespace
}  // namespace coshard::test
