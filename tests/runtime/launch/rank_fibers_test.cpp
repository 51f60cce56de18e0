// What belongs to a rank that shares its thread.
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <coshard/runtime/coro/asio.h>
#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/world.h>
#include "runtime/device/allocation_label.h"
#include "tests/runtime/launch/sharing.h"
#include "tests/support/ends.h"

namespace coshard::testing {
namespace {

using namespace std::chrono_literals;
using testing::sharing;
using testing::sum_awaited;
using testing::sum_of;

Task<void> time_and_sockets(World& world, std::atomic<int>& ended) {
  boost::asio::steady_timer timer(world.executor().io_context(),
                                  std::chrono::milliseconds(1 + 3 * world.rank()));
  co_await timer.async_wait(use_task);
  EXPECT_EQ(World::current(), &world);
  co_await sleep_for(std::chrono::milliseconds(10 - world.rank()));
  EXPECT_EQ(World::current(), &world);
  Task<void> sum = sum_awaited(world, 10);
  co_await std::move(sum);
  ++ended;
}

Task<void> yields_until(World& world, bool& flag) {
  if (world.rank() == 1) {
    flag = true;
    co_return;
  }
  while (!flag) co_await yield();
}

Task<void> label_across_a_wait(World& world) {
  static constexpr std::string_view kNames[] = {"zero", "one", "two"};
  const std::string_view mine = kNames[world.rank()];
  const AllocationLabel label(mine);
  std::vector<float> data(4);
  const Work work = world.communicator()->issue(sum_of(data));
  work.wait();
  EXPECT_EQ(AllocationLabel::current(), mine);
  co_return;
}

Task<void> resumed_by_another_thread(World& world, std::thread& helper) {
  struct Foreign {
    Executor& executor;
    std::thread& helper;
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> self) const {
      helper = std::thread([self, target = executor.asio_executor()] {
        std::this_thread::sleep_for(5ms);
        boost::asio::post(target, [self] { self.resume(); });
      });
    }
    void await_resume() const {}
  } foreign{world.executor(), helper};
  co_await foreign;
  EXPECT_EQ(World::current(), &world);
  helper.join();
}

TEST(RankThreads, RanksOfAThreadWaitForTimeAndSocketsSideBySide) {
  std::atomic<int> ended{0};
  run_ranks(sharing(6, 2), [&](World& world) { return time_and_sockets(world, ended); });
  EXPECT_EQ(ended, 6);
}

TEST(RankThreads, ARankThatYieldsLetsTheOthersOfItsThreadRun) {
  bool flag = false;
  run_ranks(sharing(2, 1), [&](World& world) { return yields_until(world, flag); });
}

TEST(RankThreads, WhatMemoryIsForBelongsToTheRank) {
  run_ranks(sharing(3, 1), label_across_a_wait);
  EXPECT_EQ(AllocationLabel::current(), "");
}

TEST(RankThreads, AnotherThreadsPostResumesTheRank) {
  std::vector<std::thread> helpers(4);
  run_ranks(sharing(4, 2), [&](World& world) {
    return resumed_by_another_thread(world, helpers[static_cast<std::size_t>(world.rank())]);
  });
}

}  // namespace
}  // namespace coshard::testing
