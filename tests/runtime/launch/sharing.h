#pragma once
// Worlds whose ranks share threads.
#include <gtest/gtest.h>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <coshard/runtime/coro/asio.h>
#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/world.h>
#include "runtime/device/allocation_label.h"
#include "tests/support/ends.h"

namespace coshard::testing {

inline WorldOptions sharing(int ranks, int rank_threads) {
  WorldOptions options = testing::quick_options(ranks);
  options.rank_threads = rank_threads;
  options.timeout = std::chrono::seconds(20);
  return options;
}

inline Collective sum_of(std::vector<float>& data) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.extent = static_cast<std::int64_t>(data.size());
  c.send = c.recv = data.data();
  return c;
}

inline float sum_of_ranks(World& world) {
  return static_cast<float>(world.size() * (world.size() - 1) / 2);
}

inline Task<void> sum_awaited(World& world, std::size_t elements) {
  std::vector<float> data(elements, static_cast<float>(world.rank()));
  const Work work = world.communicator()->issue(sum_of(data));
  co_await work;
  EXPECT_EQ(data.back(), sum_of_ranks(world));
  EXPECT_EQ(World::current(), &world);
  EXPECT_EQ(Executor::current(), &world.executor());
}

}  // namespace coshard::testing
