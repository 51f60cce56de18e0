// What peers of a failure hold is gone when run_ranks returns; executors are there until then.
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include <coshard/runtime/coro/asio.h>
#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/launch/world.h>
#include "tests/support/ends.h"
#include "tests/support/errors.h"

namespace coshard::testing {
namespace {
namespace asio = boost::asio;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Socket = asio::local::stream_protocol::socket;
using testing::Boom;
using testing::quick_options;

class Alive {
 public:
  explicit Alive(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Alive() { --count_; }
  Alive(const Alive&) = delete;
  Alive& operator=(const Alive&) = delete;

 private:
  std::atomic<int>& count_;
};

Task<void> reads_for_ever(std::atomic<int>& alive) {
  const Alive here_too(alive);
  asio::io_context& context = Executor::current()->io_context();
  Socket here(context), there(context);
  asio::local::connect_pair(here, there);
  std::string text(10, ' ');
  Task<std::size_t> read = asio::async_read(here, asio::buffer(text), use_task);
  co_await std::move(read);
}
Task<void> sleeps_for_ever(std::atomic<int>& alive) {
  const Alive here(alive);
  for (;;) co_await sleep_for(1h);
}
Task<void> waits_for_ever(World& world, std::atomic<int>& alive) {
  const Alive here(alive);
  if (world.rank() == 2) {
    std::this_thread::sleep_for(50ms);  // the others wait
    throw Boom();
  }
  Task<void> read = reads_for_ever(alive), sleep = sleeps_for_ever(alive);
  if (world.rank() == 0) {
    co_await std::move(read);
  } else {
    Task<void> both = when_all(std::move(read), std::move(sleep));
    co_await std::move(both);
  }
}

TEST(Peers, OfAFailureThatWaitForSocketsAndTimeEndAtOnceAndTheirFramesAreGone) {
  std::atomic<int> alive{0};
  const auto begin = Clock::now();
  EXPECT_THROW(
      run_ranks(quick_options(3), [&](World& world) { return waits_for_ever(world, alive); }),
      Boom);
  EXPECT_LT(Clock::now() - begin, 1s);
  EXPECT_EQ(alive, 0);
}

// A thread of the program's own, which posts to rank 0 for as long as the other ranks run.
struct Poster {
  std::thread thread;
  std::atomic<bool> started{false}, stop{false};
};
Task<void> rank_0_is_posted_to(World& world, Poster& poster, bool fails) {
  if (world.rank() == 0) {
    poster.thread = std::thread([executor = world.executor().asio_executor(), &poster] {
      while (!poster.stop) asio::post(executor, [] {});
    });
    poster.started = true;
    if (fails) throw Boom();
    co_return;
  }
  while (!poster.started) std::this_thread::yield();
  std::this_thread::sleep_for(50ms);
  poster.stop = true;
  poster.thread.join();
}

TEST(Executors, OutliveAllRanksAlsoWhenOneHasFailed) {
  for (const bool fails : {false, true}) {
    Poster poster;
    const auto program = [&](World& world) { return rank_0_is_posted_to(world, poster, fails); };
    if (fails) {
      EXPECT_THROW(run_ranks(quick_options(2), program), Boom);
    } else {
      run_ranks(quick_options(2), program);
    }
  }
}

// A rank's values go on its own thread, though its context is there until all have ended.
struct Place {
  std::thread::id made = std::this_thread::get_id();
  inline static std::atomic<int> elsewhere{0}, here{0};
  ~Place() { ++(made == std::this_thread::get_id() ? here : elsewhere); }
};
const RankLocal<Place> of_rank;
const BranchLocal<Place> of_branch;

Task<void> use_values(World&) {
  EXPECT_EQ(of_rank->made, std::this_thread::get_id());
  EXPECT_EQ(of_branch.own().made, std::this_thread::get_id());
  co_return;
}

TEST(RankValues, GoOnTheirRanksThread) {
  Place::here = Place::elsewhere = 0;
  run_ranks(quick_options(3), use_values);
  EXPECT_EQ(Place::here, 6);
  EXPECT_EQ(Place::elsewhere, 0);
}

}  // namespace
}  // namespace coshard::testing
