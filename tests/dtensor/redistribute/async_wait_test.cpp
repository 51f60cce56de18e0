// A redistribution, or any collective, awaited from Boost.Asio.
#include <coshard/dtensor/redistribute/async_wait.h>

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <future>
#include <thread>

#include <coshard/runtime/coro/asio.h>
#include <coshard/runtime/coro/deadline.h>
#include "tests/dtensor/redistribute/sums.h"
#include "tests/support/ends.h"
#include "tests/support/ranks.h"

namespace coshard::async_waiting {
namespace {
namespace asio = boost::asio;
using namespace std::chrono_literals;
using testing::be_busy;
using testing::be_busy_until;
using testing::End;
using testing::end_of;
using testing::ends_of;
using testing::on_ranks;
using testing::quick_options;
using testing::term;

DeviceMesh all_of(World& world) { return init_device_mesh(world, {world.size()}, {"all"}); }
Work barrier(World& world) { return world.communicator()->issue(Collective()); }
Redistribution sum_of(World& world, const DeviceMesh& mesh, double value) {
  return term(world, mesh, value).redistribute(Replicate());
}

// --- asio::awaitable ---

asio::awaitable<double> add_up(World& world, DeviceMesh mesh) {
  double total = 0;
  for (int i = 1; i <= 3; ++i) {
    const Redistribution issued = sum_of(world, mesh, i);
    const Tensor sum = co_await async_wait(issued, asio::use_awaitable);
    total += sum.item();
  }
  const Work last = barrier(world);
  co_await async_wait(last, asio::use_awaitable);
  co_return total;
}
Task<void> runs_an_asio_coroutine(World& world) {
  const DeviceMesh mesh = all_of(world);
  Task<double> sums = asio::co_spawn(world.executor().io_context(), add_up(world, mesh), use_task);
  const double total = co_await std::move(sums);
  EXPECT_EQ(total, 6 * world.size());
}
TEST(AsyncWait, AnAsioCoroutineAwaitsRedistributionsAndWork) {
  for (const int ranks : {1, 2, 3}) on_ranks(ranks, runs_an_asio_coroutine);
}

Task<void> beside_the_program(World& world) {
  const DeviceMesh mesh = all_of(world);
  const DeviceMesh other = DeviceMesh::from_ranks(world, {1, 0}, {2}, {"other"});
  Task<double> sums = asio::co_spawn(world.executor().io_context(), add_up(world, other), use_task);
  double own = 0;
  for (int i = 0; i < 5; ++i) {
    const Redistribution issued = sum_of(world, mesh, 1);
    const Tensor sum = co_await issued;
    own += sum.item();
  }
  const double total = co_await std::move(sums);
  EXPECT_EQ(own, 10);
  EXPECT_EQ(total, 12);
}
TEST(AsyncWait, RunsBesideTheProgramOnAnotherCommunicator) { on_ranks(2, beside_the_program); }

// --- other tokens ---

Task<void> calls_back(World& world) {
  const DeviceMesh mesh = all_of(world);
  bool inside = true;
  double got = 0;
  int called = 0;
  async_wait(sum_of(world, mesh, 2), [&](const std::exception_ptr& error, const Tensor& sum) {
    EXPECT_EQ(error, nullptr);
    EXPECT_FALSE(inside);
    got = sum.item();
    ++called;
  });
  inside = false;
  const auto begin = std::chrono::steady_clock::now();
  while (called == 0 && std::chrono::steady_clock::now() - begin < 30s) co_await sleep_for(1ms);
  EXPECT_EQ(called, 1);
  EXPECT_EQ(got, 2 * world.size());
}
TEST(AsyncWait, CallsBackOnceAndNeverInsideTheCall) { on_ranks(2, calls_back); }

// Another thread asks the rank's executor, which sleeps meanwhile, and gets a future.
Task<void> another_thread_waits(World& world) {
  const DeviceMesh mesh = all_of(world);
  const Redistribution issued = sum_of(world, mesh, 3);
  double got = 0;
  std::thread other([&] {
    std::future<Tensor> future = async_wait(world.executor(), issued, asio::use_future);
    got = future.get().item();
  });
  co_await sleep_for(50ms);
  other.join();
  EXPECT_EQ(got, 3 * world.size());
}
TEST(AsyncWait, AnotherThreadWaitsWithAFuture) { on_ranks(2, another_thread_waits); }

// --- failing, cancelling, being dropped ---

Task<void> asks_for_the_failure(World& world, End& end) {
  const Work work = barrier(world);
  if (world.rank() == 0) {
    be_busy(20ms);
    world.communicator()->poison("told by rank 0");
  }
  bool called = false;
  async_wait(work, [&](const std::exception_ptr& error) {
    called = true;
    if (error) end = end_of(error);
  });
  const auto begin = std::chrono::steady_clock::now();
  while (!called && std::chrono::steady_clock::now() - begin < 30s) co_await sleep_for(1ms);
  EXPECT_TRUE(called);
}
TEST(AsyncWait, CarriesTheErrorOfTheCollective) {
  std::vector<End> ends(3);
  ends_of(quick_options(3), [&](World& world) -> Task<void> {
    if (world.rank() < 2)
      return asks_for_the_failure(world, ends[static_cast<std::size_t>(world.rank())]);
    return sleep_for(50ms);  // it never issues the barrier
  });
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_TRUE(ends[rank].is(ErrorKind::CommFailed)) << ends[rank];
    EXPECT_TRUE(ends[rank].names("told by rank 0")) << ends[rank];
  }
}

Task<void> cancels_by_its_slot(World& world, std::atomic<bool>& cancelled) {
  const DeviceMesh mesh = all_of(world);
  if (world.rank() == 1) be_busy_until([&] { return cancelled.load(); }, 1200ms);
  const Redistribution issued = sum_of(world, mesh, 1);
  asio::cancellation_signal signal;
  End end;
  async_wait(issued, asio::bind_cancellation_slot(
                         signal.slot(), [&](const std::exception_ptr& error, const Tensor&) {
                           if (error) end = end_of(error);
                         }));
  co_await sleep_for(10ms);
  signal.emit(asio::cancellation_type::terminal);
  co_await sleep_for(30ms);
  if (world.rank() == 0) {
    EXPECT_TRUE(end.is(ErrorKind::Cancelled)) << end;
    cancelled = true;
  }
  const Tensor sum = co_await issued;  // the program itself was not cancelled, nor the collective
  EXPECT_EQ(sum.item(), 2);
}
TEST(AsyncWait, IsCancelledByTheSlotOfItsHandlerAndTheCollectiveGoesOn) {
  std::atomic<bool> cancelled{false};
  on_ranks(2, [&](World& world) { return cancels_by_its_slot(world, cancelled); });
}

Task<void> ends_before_it_is_over(World& world, std::shared_ptr<int> held, bool& called) {
  if (world.rank() == 1) co_await sleep_for(50ms);
  const Work work = barrier(world);
  if (world.rank() == 1) co_return;
  async_wait(work, [held, &called](const std::exception_ptr&) { called = true; });
  co_await sleep_for(1ms);
}
TEST(AsyncWait, WhoseProgramEndsFirstIsDestroyedAndNotCalled) {
  auto held = std::make_shared<int>(1);
  bool called = false;
  ends_of(quick_options(2),
          [&](World& world) { return ends_before_it_is_over(world, held, called); });
  EXPECT_FALSE(called);
  EXPECT_EQ(held.use_count(), 1);
}

TEST(AsyncWait, WithoutARankIsRefused) {
  const Work nothing;
  EXPECT_THROW(async_wait(nothing, asio::detached), Error);
}

}  // namespace
}  // namespace coshard::async_waiting
