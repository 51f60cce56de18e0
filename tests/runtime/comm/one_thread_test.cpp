// Ranks that share a thread: awaiting one of them lets the other come.
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <future>
#include <memory>

#include <coshard/runtime/coro/co_spawn.h>
#include "runtime/comm/local/thread_group.h"
#include "tests/support/await_work.h"

namespace coshard::testing {
namespace {
using testing::await_work;

Task<float> sum_of_ranks(std::shared_ptr<Communicator> communicator) {
  communicator->set_timeout(500'000'000);
  float value = static_cast<float>(communicator->rank() + 1);
  for (int round = 0; round < 3; ++round) {
    Collective c;
    c.kind = CollectiveKind::AllReduce;
    c.extent = 1;
    c.send = c.recv = &value;
    Task<void> awaited = await_work(communicator->issue(c));
    co_await std::move(awaited);
  }
  co_return value;
}

TEST(OneThread, TwoRanksSpawnedOnOneContextMeet) {
  ThreadGroup thread_group(2);
  boost::asio::io_context context;
  std::vector<std::future<float>> sums;
  for (int rank = 0; rank < 2; ++rank) {
    sums.push_back(
        co_spawn(context, sum_of_ranks(thread_group.communicator(rank)), boost::asio::use_future));
  }
  context.run();
  for (std::future<float>& sum : sums) {
    try {
      EXPECT_EQ(sum.get(), 12);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

}  // namespace
}  // namespace coshard::testing
