// A World on the caller's own io_context.
#include "tests/runtime/launch/asio_ranks.h"

namespace coshard::testing {
namespace {
using namespace std::chrono_literals;

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

constexpr int kTicks = 10;
asio::awaitable<void> ticks(const bool& over, int& count) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  while (!over) {
    timer.expires_after(2ms);
    co_await timer.async_wait(asio::use_awaitable);
    ++count;
  }
}
Task<void> yields_and_sums(World& world, const int& ticked) {
  const auto begin = Clock::now();
  while (ticked < kTicks && Clock::now() - begin < 30s) co_await yield();
  EXPECT_GE(ticked, kTicks) << "none while the ranks yield";
  const Work meet = barrier(world);
  co_await meet;
  co_await sleep_for(20ms);
}

TEST(RunOnAsio, AUsersTimerKeepsTickingBesideRanksThatNeverSleep) {
  asio::io_context io;
  bool over = false;
  int count = 0;
  asio::co_spawn(io, ticks(over, count), asio::detached);
  WorldOptions options = quick_options(2);
  options.timeout = 60s;
  run_ranks(
      options, [&](World& world) { return yields_and_sums(world, count); }, io.get_executor(),
      [&](const std::exception_ptr& error) {
        EXPECT_EQ(error, nullptr);
        over = true;
      });
  io.run();
  EXPECT_GT(count, kTicks);
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
  EXPECT_TRUE(seen.names("rank 1, whose part is missing, runs on the same io_context")) << seen;
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

}  // namespace
}  // namespace coshard::testing
