// What options ask for holds on every host, at the ends of its range, and in a simulation.
#include <string>

#include <coshard/runtime/cost/link.h>
#include <coshard/runtime/launch/simulate.h>
#include "runtime/launch/rank_directory.h"
#include "runtime/launch/rank_world.h"
#include "tests/runtime/launch/asio_ranks.h"
#include "tests/support/virtual_ranks.h"

namespace coshard::testing {
namespace {
using namespace std::chrono_literals;

Work issue_sum_of_one(World& world) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.extent = 1;
  c.keep_send = c.keep_recv = world.device()->make_buffer(sizeof(float));
  c.send = c.recv = c.keep_send->data();
  return world.communicator()->issue(std::move(c));
}

Task<void> times_one(World& world, Clock::duration& took) {
  const auto begin = Clock::now();
  const Work work = issue_sum_of_one(world);
  co_await work;
  took = Clock::now() - begin;
}
TEST(Options, ALinkIsEmulatedOnACallersContextToo) {
  WorldOptions options = quick_options(2);
  options.link = Link{100'000, 1'000};
  std::vector<Clock::duration> took(2);
  const auto program = [&](World& world) {
    return times_one(world, took[static_cast<std::size_t>(world.rank())]);
  };
  run_ranks(options, program);
  EXPECT_GE(took[0], 100ms);
  asio::io_context io;
  const End end = end_on(io, options, program);
  EXPECT_TRUE(end.failed || took[0] >= 100ms) << end;
}

TEST(Options, WithoutANumberOfRanksThereIsOneForEachProcessOrTwoInOne) {
  EXPECT_EQ(settled({}, {}).ranks, 2);
  EXPECT_EQ(settled({}, {.all = 6, .here = 3}).ranks, 6);
  EXPECT_EQ(settled({.ranks = 12}, {.all = 6, .here = 3}).ranks, 12);
}

TEST(Options, TheCoresOfAMachineAreSharedByTheRanksOnIt) {
  const int cores = settled({.ranks = 1}, {}).threads;
  EXPECT_EQ(settled({.ranks = 1}, {.all = 2, .here = 1}).threads, cores);
  EXPECT_EQ(settled({}, {.all = 2, .here = 2}).threads, std::max(1, cores / 2));
  EXPECT_EQ(settled({.ranks = 2 * cores}, {.all = 2, .here = 1}).threads, 1);
  EXPECT_EQ(settled({.ranks = 2 * cores, .rank_threads = 1}, {.all = 2, .here = 1}).threads, cores);
}

Task<void> ends_at_once(World&) { co_return; }
TEST(Options, BadOptionsAreRefusedByTheCallOnACallersContextToo) {
  std::vector<WorldOptions> bad(6, quick_options(2));
  bad[0].link = Link{0, 0};
  bad[1].progress_threads = -3;
  bad[2].rank_threads = -1;
  bad[3].communicator = "no such";
  bad[4].stack_bytes = 1000;
  bad[5].stack_bytes = SIZE_MAX;
  for (const WorldOptions& options : bad) {
    EXPECT_THROW(run_ranks(options, ends_at_once), Error);
    asio::io_context io;
    EXPECT_THROW(run_ranks(options, ends_at_once, io.get_executor(), [](std::exception_ptr) {}),
                 Error);
    io.run();
  }
}

Task<void> throws_on_one(World& world) {
  if (world.rank() == 1) throw std::runtime_error("boom");
  const Work work = issue_sum_of_one(world);
  co_await work;
}
TEST(Options, OnFailureIsToldOnACallersContextToo) {
  std::string told;
  WorldOptions options = quick_options(2);
  options.on_failure = [&](const Failure& failure) { told = failure.line(); };
  asio::io_context io;
  const End end = end_on(io, options, throws_on_one);
  EXPECT_TRUE(end.names("boom")) << end;
  EXPECT_NE(told.find("rank 1"), std::string::npos) << told;
}

Task<void> asks_to_stop(World& world) {
  for (int step = 0; step < 4; ++step) {
    if (world.rank() == 1 && step == 3) co_await sleep_for(100ms);
    Task<bool> asked = world.stop_requested();
    EXPECT_FALSE(co_await std::move(asked));
  }
}
// Rank 0 ends one question ahead.
TEST(Options, ARankMayEndAheadOfAPeerThatHasYetToAskForAStop) {
  std::stop_source stop;
  WorldOptions options = quick_options(2);
  options.stop = stop.get_token();
  EXPECT_NO_THROW(run_ranks(options, asks_to_stop));
  asio::io_context io;
  const End end = end_on(io, options, asks_to_stop);
  EXPECT_FALSE(end.failed) << end;
}

Task<void> one_throws_one_naps(World& world) {
  if (world.rank() == 0) {
    co_await sleep_for(1ms);  // the other one naps
    throw std::runtime_error("boom");
  }
  testing::compute_for(1500ms);
}
TEST(Options, AGraceThatNeverEndsDoesNotEndAtOnce) {
  for (const auto grace : {std::chrono::milliseconds(10'000), std::chrono::milliseconds::max()}) {
    bool told = false, out = false;
    WorldOptions options = quick_options(2);
    options.grace = grace;
    options.on_still_running = [&](const StillRunning& news) {
      told = true;
      out |= news.out_of_grace;
    };
    EXPECT_THROW(simulate(options, one_throws_one_naps, 0), std::runtime_error);
    EXPECT_TRUE(told) << grace.count();
    EXPECT_FALSE(out) << grace.count();
  }
}

Task<void> issues_a_dozen(World& world, int& over) {
  std::vector<Work> works;
  for (int i = 0; i < 12; ++i) works.push_back(issue_sum_of_one(world));
  const Work meet = issue_sum_of_one(world);
  co_await sleep_for(50ms);
  for (const Work& work : works) over += work.ready();
}
// Each takes 31 years; ten of them are more than the clock can hold.
TEST(Options, CollectivesOnALinkThatIsSlowBeyondMeasureAreNotOver) {
  WorldOptions options = quick_options(2);
  options.link = parse_link("1000000000s,1B/s");
  std::vector<int> over(2);
  run_ranks(options, [&](World& world) {
    return issues_a_dozen(world, over[static_cast<std::size_t>(world.rank())]);
  });
  EXPECT_EQ(over[0] + over[1], 0);
}

Task<void> sums_once(World& world) {
  for (int i = 0; i < 30; ++i) {
    const Work work = issue_sum_of_one(world);
    co_await yield();
    co_await work;
  }
}
std::string history(std::uint64_t seed, int progress_threads) {
  std::string all;
  SimOptions sim;
  sim.on_event = [&](const SimEvent& event) {
    all += str_cat(event.time_ns, ' ', event.rank, ' ', event.what, '\n');
  };
  WorldOptions options = quick_options(3);
  options.progress_threads = progress_threads;
  simulate(options, sums_once, seed, sim);
  return all;
}
TEST(Options, TheSameSeedGivesTheSameRunWhateverTheOptions) {
  EXPECT_EQ(history(5, 0), history(5, 0));
  EXPECT_THROW(history(5, 2), Error);
}

}  // namespace
}  // namespace coshard::testing
