// What is thrown, who is told, and which of several errors is the cause.
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <coshard/runtime/coro/asio.h>
#include <coshard/runtime/coro/deadline.h>
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
using testing::End;
using testing::in_child;
using testing::note_end;
using testing::quick_options;

void wait_for_all(World& world) {
  auto work = world.communicator()->issue(Collective());
  work.wait();
}
int run_two_ranks(const Program& program) {
  std::vector<std::string> arguments{"program", "--ranks=2", "--timeout=5"};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return run(static_cast<int>(argv.size()), argv.data(), program);
}

// --- what run() prints ---

Task<void> rank_1_throws(World& world) {
  wait_for_all(world);
  if (world.rank() == 1) throw Boom();
  wait_for_all(world);
  co_return;
}

TEST(FailureText, NamesTheRankThatThrew) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run_two_ranks(rank_1_throws), 1);
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
  EXPECT_NE(text.find("boom"), std::string::npos) << text;
  EXPECT_EQ(text.find("rank 0"), std::string::npos) << text;
}

Task<void> rank_1_throws_a_number(World& world) {
  if (world.rank() == 1) throw 42;
  wait_for_all(world);
  co_return;
}
int run_what_throws_a_number() { return run_two_ranks(rank_1_throws_a_number); }

TEST(FailureText, OfWhatIsNoExceptionNamesTheRankToo) {
  const Child child = in_child(run_what_throws_a_number, 4);
  EXPECT_EQ(child.code, 1) << child;
  EXPECT_EQ(child.signal, 0) << child;
  EXPECT_NE(child.text().find("error: "), std::string::npos) << child;
  EXPECT_NE(child.text().find("rank 1"), std::string::npos) << child;
}

// --- peers that wait for time ---

Task<void> waits_for_a_timer() {
  boost::asio::steady_timer timer(Executor::current()->io_context(), 50s);
  co_await timer.async_wait(use_task);
}
Task<void> waits_for_a_sleep() { co_await sleep_for(50s); }
Task<void> waits_in_a_child() {
  Task<void> child = waits_for_a_sleep();
  co_await std::move(child);
}

using WaitsAlone = Task<void> (*)();
Task<void> one_throws_others_wait(World& world, WaitsAlone waits, std::vector<End>& ends) {
  wait_for_all(world);
  if (world.rank() == 1) {
    std::this_thread::sleep_for(50ms);  // the others wait
    throw Boom();
  }
  Task<void> noted = note_end(waits(), ends[static_cast<std::size_t>(world.rank())]);
  co_await std::move(noted);
}

TEST(Interrupted, ThePeersFailurePassesThroughTheFramesOfARankThatWaitsForTime) {
  for (const WaitsAlone waits : {waits_for_a_timer, waits_for_a_sleep, waits_in_a_child}) {
    std::vector<End> ends(3);
    const auto begin = Clock::now();
    EXPECT_THROW(
        run_ranks(quick_options(3),
                  [&](World& world) { return one_throws_others_wait(world, waits, ends); }),
        Boom);
    EXPECT_LT(Clock::now() - begin, 1s);
    for (const std::size_t rank : {0U, 2U}) {
      EXPECT_TRUE(ends[rank].failed) << "rank " << rank << " was dropped without an exception";
      EXPECT_TRUE(ends[rank].names("boom")) << ends[rank];
    }
  }
}

// --- the cause ---

Task<void> throw_after_the_echo(World& world, std::atomic<bool>& echoed) {
  if (world.rank() == 1) {
    world.communicator()->poison("told before it is thrown");
    while (!echoed) std::this_thread::yield();
    std::this_thread::sleep_for(50ms);  // rank 0 has ended with it
    throw Boom();
  }
  try {
    wait_for_all(world);
  } catch (const Error&) {
    echoed = true;
    throw;
  }
  co_return;
}

TEST(Cause, IsTheErrorOfTheRankThatFailedAlsoWhenAPeersEchoOfItComesFirst) {
  std::atomic<bool> echoed{false};
  EXPECT_THROW(run_ranks(quick_options(2),
                         [&](World& world) { return throw_after_the_echo(world, echoed); }),
               Boom);
}

}  // namespace
}  // namespace coshard::testing
