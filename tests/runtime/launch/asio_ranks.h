#pragma once
// What the tests of ranks on a caller's context share.
#include <coshard/runtime/launch/run_on_asio.h>

#include <coshard/runtime/comm/async_wait.h>
#include <coshard/runtime/coro/asio.h>
#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/in_order.h>
#include <coshard/runtime/coro/when_all.h>
#include <gtest/gtest.h>
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <future>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>
#include "tests/runtime/comm/issue.h"
#include "tests/runtime/coro/counted.h"
#include "tests/support/ends.h"
#include "tests/support/errors.h"

namespace coshard::testing {
namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;
using testing::Boom;
using testing::End;
using testing::end_of;
using testing::keep_end;
using testing::note_end;
using testing::quick_options;

inline Work barrier(World& world) { return world.communicator()->issue(Collective()); }

// How the run on `io`, which this thread runs, ended.
inline End end_on(asio::io_context& io, const WorldOptions& options, const Program& program) {
  End end;
  bool called = false;
  run_ranks(options, program, io.get_executor(), [&](const std::exception_ptr& error) {
    EXPECT_EQ(Executor::current(), nullptr);
    called = true;
    if (error) end = end_of(error);
  });
  io.run();
  EXPECT_TRUE(called);
  return end;
}
inline End end_on_one_thread(int ranks, const Program& program) {
  asio::io_context io;
  return end_on(io, quick_options(ranks), program);
}

inline Task<void> sums(World& world, int count, float term) {
  for (int i = 0; i < count; ++i) {
    float value = term;
    const Work sum = issue_sum(world, value);
    co_await sum;
    EXPECT_EQ(value, term * static_cast<float>(world.size()));
    EXPECT_EQ(World::current(), &world);
    if (i % 7 == 0) co_await yield();
  }
}

}  // namespace coshard::testing
