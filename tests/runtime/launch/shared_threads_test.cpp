// Many ranks on few threads.
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
#include "tests/runtime/launch/sharing.h"
#include "tests/support/ends.h"
#include "tests/support/errors.h"

namespace coshard::testing {
namespace {

using namespace std::chrono_literals;
using testing::Boom;
using testing::End;
using testing::ends_of;
using testing::sharing;
using testing::sum_awaited;
using testing::sum_of;
using testing::sum_of_ranks;

Task<void> sums_in_place(World& world) {
  for (int round = 0; round < 10; ++round) {
    std::vector<float> data(5000, static_cast<float>(world.rank()));
    const Work work = world.communicator()->issue(sum_of(data));
    work.wait();
    EXPECT_EQ(data[round], sum_of_ranks(world));
  }
  co_return;
}

Task<void> one_throws_to_waiting_ones(World& world) {
  std::vector<float> data(4);
  const Work first = world.communicator()->issue(sum_of(data));
  co_await first;
  if (world.rank() == 2) throw Boom("boom 2");
  if (world.rank() % 2 == 0) {
    boost::asio::steady_timer timer(world.executor().io_context(), 50s);
    co_await timer.async_wait(use_task);
  }
  if (world.rank() % 3 == 0) co_await sleep_for(50s);
  const Work second = world.communicator()->issue(sum_of(data));
  second.wait();
  ADD_FAILURE() << "rank " << world.rank() << " went on";
}

Task<void> rethrows_its_own(World& world, std::vector<End>& ends) {
  const auto rank = static_cast<std::size_t>(world.rank());
  std::vector<float> data(4);
  try {
    try {
      throw Boom(str_cat("boom ", world.rank()));
    } catch (...) {
      const Work work = world.communicator()->issue(sum_of(data));
      work.wait();  // the others' turn, in the middle of a handler
      throw;
    }
  } catch (...) {
    ends[rank] = testing::end_of(std::current_exception());
  }
  co_return;
}

Task<void> never_completes(World& world) {
  if (world.rank() == 0) {
    struct Never {
      bool await_ready() const { return false; }
      void await_suspend(std::coroutine_handle<>) const {}
      void await_resume() const {}
      using awaitable_of_coshard = void;
    } never;
    co_await never;
  }
}

Task<void> does_no_work(World&) { co_return; }

TEST(RankThreads, RanksThatShareAThreadMeet) {
  for (const int threads : {1, 2, 3, 9}) {
    std::vector<std::thread::id> where(8);
    run_ranks(sharing(8, threads), [&](World& world) {
      where[static_cast<std::size_t>(world.rank())] = std::this_thread::get_id();
      return sum_awaited(world, 10);
    });
    const auto shared = static_cast<std::size_t>(std::min(threads, 8));
    for (std::size_t a = 0; a < where.size(); ++a)
      for (std::size_t b = 0; b < a; ++b)
        EXPECT_EQ(where[a] == where[b], a % shared == b % shared) << threads << ": " << a << b;
  }
  EXPECT_EQ(World::current(), nullptr);
}

TEST(RankThreads, AWaitInPlaceIsTheNextRanksTurn) {
  run_ranks(sharing(7, 2), sums_in_place);
  run_ranks(sharing(1, 1), sums_in_place);
}

TEST(RankThreads, AThousandRanksShareTwoThreads) {
  run_ranks(sharing(1024, 2), [](World& world) { return sum_awaited(world, 16); });
}

TEST(RankThreads, ARankThatThrowsEndsAllWithItsOwnError) {
  for (const int threads : {1, 2, 3})
    EXPECT_THROW(run_ranks(sharing(6, threads), one_throws_to_waiting_ones), Boom);
}

TEST(RankThreads, EachRankRethrowsItsOwnException) {
  std::vector<End> ends(5);
  run_ranks(sharing(5, 1), [&](World& world) { return rethrows_its_own(world, ends); });
  for (std::size_t r = 0; r < ends.size(); ++r) EXPECT_EQ(ends[r].text, str_cat("boom ", r));
}

TEST(RankThreads, AWaitForNobodyIsAnError) {
  const std::vector<End> ends = ends_of(sharing(3, 1), never_completes);
  EXPECT_FALSE(ends[1].failed);
  try {
    run_ranks(sharing(3, 1), never_completes);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
  }
}

TEST(RankThreads, BadNumbersAreNamed) {
  try {
    run_ranks(sharing(2, -1), does_no_work);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_STREQ(error.what(), "rank_threads must be at least 0, got -1");
  }
  char name[] = "test", option[] = "--rank-threads", zero[] = "0", one[] = "1";
  char* refused[] = {name, option, zero};
  EXPECT_EQ(run(3, refused, does_no_work), 2);
  char* taken[] = {name, option, one};
  EXPECT_EQ(run(3, taken, does_no_work), 0);
}

}  // namespace
}  // namespace coshard::testing
