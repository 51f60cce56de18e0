#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <stdexcept>
#include <vector>

#include <coshard/runtime/coro/asio.h>
#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/world.h>
#include "tests/support/errors.h"

namespace coshard::testing {
namespace {
using testing::Boom;

Collective sum_in_place_of(std::vector<float>& data) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.extent = static_cast<std::int64_t>(data.size());
  c.send = c.recv = data.data();
  return c;
}

Task<void> add_up(World& world, std::atomic<int>& ended) {
  std::vector<float> data{static_cast<float>(world.rank())};
  const Work work = world.communicator()->issue(sum_in_place_of(data));
  co_await yield();
  work.wait();
  EXPECT_EQ(data[0], static_cast<float>(world.size() * (world.size() - 1) / 2));
  EXPECT_EQ(World::current(), &world);
  EXPECT_EQ(Executor::current(), &world.executor());
  char name[16];
  pthread_getname_np(pthread_self(), name, sizeof name);
  EXPECT_EQ(std::string(name), str_cat("rank ", world.rank()));
  ++ended;
}

TEST(RunRanks, RunsTheProgramOnEveryRank) {
  for (int ranks : {1, 2, 5}) {
    std::atomic<int> ended{0};
    run_ranks({.ranks = ranks}, [&](World& world) { return add_up(world, ended); });
    EXPECT_EQ(ended, ranks);
  }
  EXPECT_EQ(World::current(), nullptr);
}

Task<void> see_threads(World& world, int& threads) {
  if (world.rank() == 0) threads = world.options().threads;
  co_return;
}

TEST(RunRanks, GivesEachRankAtLeastOneThread) {
  int threads = 0;
  run_ranks({.ranks = 64}, [&](World& world) { return see_threads(world, threads); });
  EXPECT_EQ(threads, 1);
  run_ranks({.ranks = 1, .threads = 3}, [&](World& world) { return see_threads(world, threads); });
  EXPECT_EQ(threads, 3);
}

Task<void> one_throws(World& world, int who) {
  std::vector<float> data(4);
  const Work first = world.communicator()->issue(sum_in_place_of(data));
  first.wait();
  co_await yield();
  if (world.rank() == who) throw Boom();
  const Work second = world.communicator()->issue(sum_in_place_of(data));
  second.wait();
  ADD_FAILURE() << "rank " << world.rank() << " went on";
}

TEST(RunRanks, ARankThatThrowsEndsAllWithItsOwnError) {
  for (int round = 0; round < 10; ++round)
    EXPECT_THROW(
        run_ranks({.ranks = 3}, [&](World& world) { return one_throws(world, round % 3); }), Boom);
}

Task<void> one_throws_others_sleep(World& world) {
  if (world.rank() == 1) throw Boom();
  boost::asio::steady_timer timer(world.executor().io_context(), std::chrono::seconds(50));
  co_await timer.async_wait(use_task);
}

TEST(RunRanks, ARankThatThrowsEndsThoseThatSleep) {
  EXPECT_THROW(run_ranks({.ranks = 3}, one_throws_others_sleep), Boom);
}

Task<void> one_throws_in_a_group(World& world) {
  const std::vector<int> members{0, 1};
  const auto group = world.group(members, "tp");
  if (world.rank() == 2) throw Boom();
  std::vector<float> data(4);
  const Work work = group->issue(sum_in_place_of(data));
  work.wait();
  if (world.rank() == 0) {
    const Work alone = group->issue(sum_in_place_of(data));
    alone.wait();
  } else {
    const Work recv = world.communicator()->issue(sum_in_place_of(data));
    recv.wait();
  }
  co_return;
}

TEST(RunRanks, AFailureReachesGroupsThatTheRankIsNotIn) {
  EXPECT_THROW(run_ranks({.ranks = 3}, one_throws_in_a_group), Boom);
}

Task<void> one_leaves(World& world) {
  std::vector<float> data(4);
  const Work first = world.communicator()->issue(sum_in_place_of(data));
  first.wait();
  if (world.rank() == 1) co_return;
  const Work second = world.communicator()->issue(sum_in_place_of(data));
  second.wait();
}

TEST(RunRanks, ARankThatEndsEarlyIsNamed) {
  try {
    run_ranks({.ranks = 2}, one_leaves);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::CommFailed);
    EXPECT_NE(std::string(error.what()).find("rank 1 left the program after #0"), std::string::npos)
        << error.what();
  }
}

Task<void> one_is_late(World& world, std::atomic<bool>& over) {
  if (world.rank() == 1) {
    while (!over.load()) std::this_thread::yield();
    co_return;
  }
  std::vector<float> data(4);
  const Work work = world.communicator()->issue(sum_in_place_of(data));
  try {
    work.wait();
  } catch (...) {
    over = true;
    throw;
  }
}

TEST(RunRanks, TheTimeoutOfTheOptionsIsTheDeadlineOfEachWait) {
  std::atomic<bool> over{false};
  try {
    run_ranks({.ranks = 2, .timeout = std::chrono::milliseconds(50)},
              [&](World& world) { return one_is_late(world, over); });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Timeout);
    EXPECT_NE(
        std::string(error.what()).find("missing: 1 (has issued no collective on world[2] yet)"),
        std::string::npos)
        << error.what();
  }
}

TEST(RunRanks, RefusesANumberOfRanksBelowZero) {
  try {
    run_ranks({.ranks = -1}, one_leaves);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_STREQ(error.what(), "ranks must be at least 0, got -1");
  }
}

TEST(RunRanks, RunsTwoRanksWhereNoNumberIsGiven) {
  std::atomic<int> ran{0};
  run_ranks({}, [&](World& world) -> Task<void> {
    ++ran;
    EXPECT_EQ(world.size(), 2);
    EXPECT_EQ(world.options().ranks, 2);
    co_return;
  });
  EXPECT_EQ(ran, 2);
}

// Rank `who` leaves something behind.
Task<void> leaves(World& world, int who, const std::function<void()>& at_the_end) {
  const std::uint64_t left = world.must_finish("left it"), other = world.must_finish("another");
  EXPECT_NE(left, other);
  world.finished(other);
  if (world.rank() != who) world.finished(left);
  at_the_end();
  co_return;
}

TEST(RunRanks, AProgramMustFinishWhatItSaysAndAnErrorNamesWhatIsLeft) {
  std::string line;
  WorldOptions options;
  options.ranks = 2;
  options.on_failure = [&](const Failure& failure) { line = failure.line(); };
  const auto text_of_run = [&](int who, const std::function<void()>& at_the_end) {
    line.clear();
    try {
      run_ranks(options, [&](World& world) { return leaves(world, who, at_the_end); });
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string ended = text_of_run(0, [] {});
  EXPECT_EQ(ended, "rank 0: left it");
  EXPECT_EQ(line, ended);
  const auto fails_on = [](int rank) {
    return [rank] { CS_REQUIRE(World::current()->rank() != rank, "no"); };
  };
  EXPECT_EQ(text_of_run(-1, fails_on(1)), "rank 1: no");
  EXPECT_EQ(text_of_run(0, fails_on(0)), "rank 0: no; left it");
  EXPECT_EQ(line, "rank 0: no; left it");
  const auto throws_its_own = [] {
    if (World::current()->rank() == 0) throw Boom();
  };
  EXPECT_EQ(text_of_run(0, throws_its_own), Boom().what());
  EXPECT_EQ(line, str_cat("rank 0: ", Boom().what(), "; left it"));
}

TEST(RunRanks, RefusesToRunNoProgram) {
  try {
    run_ranks({.ranks = 2}, nullptr);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "run_ranks: the program is an empty function");
  }
}

}  // namespace
}  // namespace coshard::testing
