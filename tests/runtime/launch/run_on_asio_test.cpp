// A World on the caller's own io_context.
#include "runtime/launch/run_on_asio.h"

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

#include "runtime/comm/async_wait.h"
#include "runtime/coro/asio.h"
#include "runtime/coro/deadline.h"
#include "runtime/coro/in_order.h"
#include "runtime/coro/when_all.h"
#include "tests/runtime/coro/counted.h"
#include "tests/support/ends.h"

namespace coshard::test {
namespace {
namespace asio = boost::asio;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using testing::End;
using testing::end_of;
using testing::keep_end;
using testing::note_end;
using testing::quick_options;

struct Boom : std::runtime_error {
  Boom() : std::runtime_error("boom") {}
};

Work barrier(World& world) { return world.communicator()->issue(Collective()); }
Work issue_sum(World& world, float& value) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.extent = 1;
  c.send = c.recv = &value;
  return world.communicator()->issue(std::move(c));
}

// How the run on `io`, which this thread runs, ended.
End end_on(asio::io_context& io, const WorldOptions& options, const Program& program) {
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
End end_on_one_thread(int ranks, const Program& program) {
  asio::io_context io;
  return end_on(io, quick_options(ranks), program);
}

Task<void> sums(World& world, int count, float term) {
  for (int i = 0; i < count; ++i) {
    float value = term;
    const Work sum = issue_sum(world, value);
    co_await sum;
    EXPECT_EQ(value, term * static_cast<float>(world.size()));
    EXPECT_EQ(World::current(), &world);
    if (i % 7 == 0) co_await yield();
  }
}
Task<void> naps(World& world) {
  for (int i = 0; i < 4; ++i) {
    co_await in_order(sleep_for(std::chrono::milliseconds((world.rank() * 5 + i) % 4)));
    const Work meet = barrier(world);
    co_await meet;
  }
}
Task<void> two_branches(World& world) {
  Task<void> adds = sums(world, 50, 1), meets = naps(world);
  Task<void> both = when_all(std::move(adds), std::move(meets));
  co_await std::move(both);
}

TEST(RunOnAsio, RanksShareOneThreadOfOneContext) {
  for (const int ranks : {1, 2, 5}) {
    const End end = end_on_one_thread(ranks, two_branches);
    EXPECT_FALSE(end.failed) << end;
  }
}

TEST(RunOnAsio, RanksShareAContextOfTwoThreads) {
  for (int round = 0; round < 10; ++round) {
    asio::io_context io;
    std::future<void> future =
        run_ranks(quick_options(3), two_branches, io.get_executor(), asio::use_future);
    std::thread other([&] { io.run(); });
    io.run();
    other.join();
    EXPECT_NO_THROW(future.get());
  }
}

TEST(RunOnAsio, RanksShareAThreadPool) {
  for (int round = 0; round < 10; ++round) {
    asio::thread_pool pool(3);
    std::future<void> future =
        run_ranks(quick_options(4), two_branches, pool.get_executor(), asio::use_future);
    EXPECT_NO_THROW(future.get());
    pool.join();
  }
}

Task<void> notes_its_thread(World& world, std::mutex& mutex, std::set<std::thread::id>& threads,
                            std::vector<std::thread::id>& of_rank) {
  const Work meet = barrier(world);
  co_await meet;
  const std::scoped_lock lock(mutex);
  threads.insert(std::this_thread::get_id());
  of_rank[static_cast<std::size_t>(world.rank())] = std::this_thread::get_id();
}

TEST(RunOnAsio, RankRLivesOnExecutorNumberRModuloTheirCount) {
  asio::io_context even, odd;
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::vector<std::thread::id> of_rank(4);
  const std::vector<asio::any_io_executor> both{even.get_executor(), odd.get_executor()};
  std::future<void> future = run_ranks(
      quick_options(4),
      [&](World& world) { return notes_its_thread(world, mutex, threads, of_rank); }, both,
      asio::use_future);
  std::thread other([&] { odd.run(); });
  even.run();
  other.join();
  EXPECT_NO_THROW(future.get());
  EXPECT_EQ(threads.size(), 2U);
  EXPECT_EQ(of_rank[0], of_rank[2]);
  EXPECT_EQ(of_rank[1], of_rank[3]);
}

TEST(RunOnAsio, RunsNothingInsideTheCall) {
  asio::io_context io;
  bool begun = false;
  run_ranks(
      quick_options(1),
      [&](World&) -> Task<void> {
        begun = true;
        co_return;
      },
      io.get_executor(), asio::detached);
  EXPECT_FALSE(begun);
  io.run();
  EXPECT_TRUE(begun);
}

// --- beside the user's own work ---

asio::awaitable<void> ticks(const bool& over, int& count, Clock::duration& worst) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  auto last = Clock::now();
  while (!over) {
    timer.expires_after(2ms);
    co_await timer.async_wait(asio::use_awaitable);
    worst = std::max(worst, Clock::now() - last);
    last = Clock::now();
    ++count;
  }
}
Task<void> yields_and_sums(World& world) {
  const auto begin = Clock::now();
  while (Clock::now() - begin < 60ms) co_await yield();
  const Work meet = barrier(world);
  co_await meet;
  co_await sleep_for(20ms);
}

TEST(RunOnAsio, AUsersTimerKeepsTickingBesideRanksThatNeverSleep) {
  asio::io_context io;
  bool over = false;
  int count = 0;
  Clock::duration worst{};
  asio::co_spawn(io, ticks(over, count, worst), asio::detached);
  run_ranks(quick_options(2), yields_and_sums, io.get_executor(),
            [&](const std::exception_ptr& error) {
              EXPECT_EQ(error, nullptr);
              over = true;
            });
  io.run();
  EXPECT_GT(count, 8);
  EXPECT_LT(worst, 100ms);
}

Task<int> spawned(World& world) {
  EXPECT_EQ(World::current(), &world);
  co_await sleep_for(1ms);
  float value = 1;
  const Work sum = issue_sum(world, value);
  co_await sum;
  co_return static_cast<int>(value);
}
Task<void> spawns_beside_itself(World& world) {
  Task<int> task = co_spawn(world.executor(), spawned(world), use_task);
  const int value = co_await std::move(task);
  EXPECT_EQ(value, world.size());
  Task<int> by_place = co_spawn(world.executor().asio_executor(), spawned(world), use_task);
  const int again = co_await std::move(by_place);
  EXPECT_EQ(again, world.size());
}

TEST(RunOnAsio, ATaskIsSpawnedBesideTheProgramInTheStateOfItsRank) {
  const End end = end_on_one_thread(3, spawns_beside_itself);
  EXPECT_FALSE(end.failed) << end;
}
TEST(RunOnThreads, ATaskIsSpawnedBesideTheProgramInTheStateOfItsRank) {
  run_ranks(quick_options(3), spawns_beside_itself);
}

asio::awaitable<void> awaits_in_asio(World& world, float& value) {
  const Work sum = issue_sum(world, value);
  co_await async_wait(world.executor(), sum, asio::use_awaitable);
}
Task<void> beside_an_asio_coroutine(World& world) {
  float value = 1;
  const asio::any_io_executor& here = world.executor().asio_executor();
  Task<void> sum = asio::co_spawn(here, awaits_in_asio(world, value), use_task);
  co_await std::move(sum);
  EXPECT_EQ(value, static_cast<float>(world.size()));
}
TEST(RunOnAsio, AnAsioCoroutineOnTheRanksStrandAwaitsWork) {
  const End end = end_on_one_thread(2, beside_an_asio_coroutine);
  EXPECT_FALSE(end.failed) << end;
}

// A world inside of a rank of another world, on that rank's own context.
Task<void> world_in_a_world(World& world) {
  asio::io_context& io = world.executor().io_context();
  const WorldOptions options = quick_options(2);
  Task<void> inner = run_ranks(options, two_branches, io.get_executor(), use_task);
  co_await std::move(inner);
  EXPECT_EQ(World::current(), &world);
}
TEST(RunOnAsio, AWorldRunsOnTheContextOfARankOfAnother) {
  run_ranks(quick_options(2), world_in_a_world);
}

// --- waits in place ---

Task<void> waits_in_place(World& world, End& seen) {
  float value = 1;
  const Work sum = issue_sum(world, value);
  if (world.rank() == 0) {
    try {
      sum.wait();
    } catch (...) {
      seen = end_of(std::current_exception());
    }
  }
  co_await sum;  // nothing was lost
  EXPECT_EQ(value, 2);
}

TEST(RunOnAsio, AWaitInPlaceForARankOfTheSameContextIsAnErrorThatNamesIt) {
  End seen;
  const End end = end_on_one_thread(2, [&](World& world) { return waits_in_place(world, seen); });
  EXPECT_FALSE(end.failed) << end;
  EXPECT_TRUE(seen.is(ErrorKind::BadInput)) << seen;
  EXPECT_TRUE(seen.names("all_reduce #0 on world[2]")) << seen;
  EXPECT_TRUE(seen.names("rank 1, which it waits for, runs on the same io_context")) << seen;
}

Task<void> drops_borrowed_memory(World& world) {
  float value = 1;
  if (world.rank() == 0) {
    const Work sum = issue_sum(world, value);  // its destructor cannot wait
  }
  const Work meet = barrier(world);
  co_await meet;
}

TEST(RunOnAsio, BorrowedMemoryThatGoesBeforeItsPeersAreDonePoisonsTheCommunicator) {
  const End end = end_on_one_thread(2, drops_borrowed_memory);
  EXPECT_TRUE(end.is(ErrorKind::CommFailed)) << end;
  EXPECT_TRUE(end.names("runs on the same io_context")) << end;
}

// --- failure ---

using Waits = Task<void> (*)(World& world);
Task<void> waits_for_a_peer(World& world) {
  const Work meet = barrier(world);
  co_await meet;
}
Task<void> waits_for_time(World&) { co_await sleep_for(50s); }
Task<void> waits_for_a_timer(World& world) {
  asio::steady_timer timer(world.executor().asio_executor(), 50s);
  co_await timer.async_wait(use_task);
}
Task<void> rank_1_throws(World& world, Waits waits, std::vector<End>& ends) {
  if (world.rank() == 1) {
    co_await sleep_for(5ms);
    throw Boom();
  }
  Task<void> noted = note_end(waits(world), ends[static_cast<std::size_t>(world.rank())]);
  co_await std::move(noted);
}

TEST(RunOnAsio, AFailureEndsThePeersAndIsWhatTheTokenGets) {
  for (const Waits waits : {waits_for_a_peer, waits_for_time, waits_for_a_timer}) {
    std::vector<End> ends(3);
    const auto begin = Clock::now();
    const End end =
        end_on_one_thread(3, [&](World& world) { return rank_1_throws(world, waits, ends); });
    EXPECT_EQ(end.text, "boom");
    EXPECT_LT(Clock::now() - begin, 1s);
    for (const std::size_t rank : {0U, 2U}) EXPECT_TRUE(ends[rank].names("boom")) << ends[rank];
  }
}

Task<void> never_comes_back(World& world, Counts& counts) {
  const Counted local(counts);
  if (world.rank() == 0) throw Boom();
  co_await std::suspend_always{};
}
TEST(RunOnAsio, ARankThatNobodyWillResumeEndsWithItsPeers) {
  Counts counts;
  const End end =
      end_on_one_thread(2, [&](World& world) { return never_comes_back(world, counts); });
  EXPECT_EQ(end.text, "boom");
  EXPECT_EQ(counts.alive(), 0);
}

Task<void> waits_for_nobody(World&) { co_await std::suspend_always{}; }
TEST(RunOnAsio, ATaskThatNobodyWillCompleteIsAnError) {
  const End end = end_on_one_thread(2, waits_for_nobody);
  EXPECT_TRUE(end.is(ErrorKind::BadInput)) << end;
  EXPECT_TRUE(end.names("nobody will complete")) << end;
}

Task<void> late_for_the_timeout(World& world) {
  if (world.rank() == 1) co_await sleep_for(2s);
  const Work meet = barrier(world);
  co_await meet;
}
TEST(RunOnAsio, TheDeadlineOfACollectiveIsKept) {
  asio::io_context io;
  WorldOptions options = quick_options(2);
  options.timeout = 100ms;
  const auto begin = Clock::now();
  const End end = end_on(io, options, late_for_the_timeout);
  EXPECT_TRUE(end.is(ErrorKind::Timeout)) << end;
  EXPECT_TRUE(end.names("missing: 1")) << end;
  EXPECT_LT(Clock::now() - begin, 1s);
}

Task<void> nothing(World&) { co_return; }
TEST(RunOnAsio, BadInputIsRefusedAtOnce) {
  asio::io_context io;
  WorldOptions options = quick_options(0);
  EXPECT_THROW(run_ranks(options, nothing, io.get_executor(), asio::detached), Error);
  options = quick_options(2);
  const std::vector<asio::any_io_executor> none;
  EXPECT_THROW(run_ranks(options, nothing, none, asio::detached), Error);
}

// --- destruction ---

Task<void> holds_and_waits(World& world, Counts& counts, Waits waits) {
  const Counted local(counts);
  if (waits != waits_for_a_peer || world.rank() == 0) {
    Task<void> task = waits(world);
    const auto work = [&](std::stop_token) { return std::move(task); };
    Task<void> bounded = with_deadline(1h, "a long time", work);
    Task<void> beside = waits_for_time(world);
    Task<void> both = when_all(std::move(bounded), std::move(beside));
    co_await std::move(both);
  }
  co_await sleep_for(50s);
}

TEST(RunOnAsio, RanksAreDestroyedWithTheContextThatTheyWaitOn) {
  for (const Waits waits : {waits_for_a_peer, waits_for_time, waits_for_a_timer}) {
    Counts counts;
    auto held = std::make_shared<int>(1);
    {
      asio::io_context io;
      run_ranks(
          quick_options(3), [&](World& world) { return holds_and_waits(world, counts, waits); },
          io.get_executor(), [held](const std::exception_ptr&) { FAIL(); });
      io.run_for(10ms);
      EXPECT_EQ(counts.alive(), 3);
    }
    EXPECT_EQ(counts.alive(), 0);
    EXPECT_EQ(held.use_count(), 1);
  }
}

TEST(RunOnAsio, RanksAreDestroyedWithTheContextThatNeverRan) {
  auto held = std::make_shared<int>(1);
  {
    asio::io_context io;
    run_ranks(
        quick_options(2), [held](World&) -> Task<void> { co_return; }, io.get_executor(),
        asio::detached);
  }
  EXPECT_EQ(held.use_count(), 1);
}

TEST(RunOnAsio, WhenOneOfTwoContextsIsDestroyedTheRanksOfTheOtherFail) {
  asio::io_context second;
  std::vector<End> ends(2);
  bool called = false;
  {
    asio::io_context first;
    const std::vector<asio::any_io_executor> both{first.get_executor(), second.get_executor()};
    run_ranks(
        quick_options(2),
        [&](World& world) {
          return note_end(waits_for_time(world), ends[static_cast<std::size_t>(world.rank())]);
        },
        both, [&](const std::exception_ptr&) { called = true; });
    first.run_for(5ms);
    second.run_for(5ms);
  }
  second.restart();
  second.run_for(500ms);
  EXPECT_TRUE(ends[1].names("rank 0 was destroyed with its io_context")) << ends[1];
  EXPECT_FALSE(called);
}

}  // namespace
}  // namespace coshard::test
