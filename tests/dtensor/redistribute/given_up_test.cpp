// What all ranks give up alike lets the program go on, whatever had arrived by then; and what is
// deferred is issued in its own branch, and has a deadline.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/in_order.h>
#include <coshard/runtime/coro/when_all.h>
#include "dtensor/redistribute/deferred.h"
#include "tests/support/ends.h"
#include "tests/support/ranks.h"
#include "tests/support/virtual_ranks.h"

namespace coshard::testing {
namespace {
using namespace std::chrono_literals;
using testing::counting;
using testing::End;
using testing::ends_of;
using testing::quick_options;
using testing::simulated_ends_of;

// Memory of the library's own: nobody waits for it when it is dropped.
struct Cell {
  explicit Cell(float v) : memory(World::current()->device()->make_buffer(sizeof v)) {
    value() = v;
  }
  float& value() { return *static_cast<float*>(memory->data()); }
  std::shared_ptr<Buffer> memory;
};
using CellPtr = std::shared_ptr<Cell>;
CellPtr cell(float value) { return std::make_shared<Cell>(value); }

Work issue_sum(Communicator& on, const CellPtr& of) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.extent = 1;
  c.send = c.recv = of->memory->data();
  c.keep_send = c.keep_recv = of->memory;
  return on.issue(std::move(c));
}
Task<void> sum(Communicator& on, CellPtr of) {
  const Work work = issue_sum(on, of);
  co_await work;
}

Task<void> takes_shards(World& world, DTensor x) {
  if (world.rank() == 1) std::this_thread::sleep_for(100ms);
  Redistribution r = x.redistribute(Replicate());
  for (;;) {
    const auto part = co_await r.next_shard();
    if (!part) break;
  }
}
Task<void> boom() {
  const Work none;
  co_await none;
  throw std::runtime_error("boom");
}
Task<void> cancels_between_shards(World& world, int& rounds) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  const Tensor whole = counting(world, Shape{1 << 16, 8}, DType::F32);
  const DTensor x = distribute_tensor(whole, mesh, Shard(0));
  Task<void> shards = takes_shards(world, x), fails = boom();
  Task<void> both = when_all(std::move(shards), std::move(fails));
  try {
    co_await std::move(both);
  } catch (const std::runtime_error&) {
  }
  const Tensor ones = counting(world, Shape{4}, DType::F32);
  const Redistribution r = from_local(ones, mesh, Partial()).redistribute(Replicate());
  co_await r;
  ++rounds;
}

// All ranks give up the same wait at the same place, whichever shard came last.
TEST(GivenUp, TheSameWaitForAShardGivenUpOnAllRanksLetsTheProgramGoOn) {
  std::atomic<int> done{0};
  const std::vector<End> ends = ends_of(quick_options(2), [&](World& world) -> Task<void> {
    return [](World& w, std::atomic<int>& all) -> Task<void> {
      int rounds = 0;
      Task<void> task = cancels_between_shards(w, rounds);
      co_await std::move(task);
      all += rounds;
    }(world, done);
  });
  for (const End& end : ends) EXPECT_FALSE(end.failed) << end;
  EXPECT_EQ(done, 2);
}

Task<void> awaits(Redistribution redistribution) { co_await redistribution; }
Task<void> gives_up_a_local_step(World& world, int& done) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  const DTensor x = from_local(counting(world, Shape{64}, DType::F32), mesh, Partial());
  const Redistribution whole = x.redistribute(Replicate());
  RedistributeOptions casts;
  casts.forward_dtype = DType::BF16;
  // Local steps, which follow the all_reduce, and a collective that hangs on them.
  const Redistribution slice = redistribute(whole.tensor(), Layout{Shard(0)}, casts);
  const Redistribution hangs = slice.tensor().redistribute(Replicate());
  std::this_thread::sleep_for(world.rank() == 0 ? 0ms : 20ms);
  const DTensor y = from_local(counting(world, Shape{64}, DType::F32), mesh, Partial());
  const Redistribution other = y.redistribute(Replicate());
  std::this_thread::sleep_for(world.rank() == 0 ? 20ms : 0ms);
  Task<void> fails = boom(), waits = awaits(slice);
  Task<void> both = when_all(std::move(fails), std::move(waits));
  try {
    co_await std::move(both);
  } catch (const std::runtime_error&) {
  }
  const Redistribution last = y.redistribute(Replicate());
  co_await last;
  ++done;
}

// The same, whether or not a peer has done the step already.
TEST(GivenUp, TheSameWaitForALocalStepGivenUpOnAllRanksLetsTheProgramGoOn) {
  for (int round = 0; round < 60; ++round) {
    int done[2] = {0, 0};
    WorldOptions options = quick_options(2);
    options.progress_threads = round % 2;
    const std::vector<End> ends = ends_of(
        options, [&](World& world) { return gives_up_a_local_step(world, done[world.rank()]); });
    ASSERT_EQ(done[0] + done[1], 2) << "round " << round << ": " << ends[0];
  }
}

Task<void> load(int naps) {
  for (int i = 0; i < naps; ++i) co_await sleep_for(1ms);
}
Task<void> loads(int naps) {
  for (int i = 0; i < 10; ++i) co_await in_order(load(naps));
}
Task<void> reads_later(World& world, DeviceMesh mesh) {
  for (int i = 0; i < 10; ++i) {
    const Tensor ones = counting(world, Shape{4}, DType::F32);
    const DTensor terms = from_local(ones, mesh, Partial());
    std::optional<Redistribution> later;
    {
      const DeferRedistributes deferring;
      later.emplace(terms.redistribute(Replicate()));
    }
    co_await *later;
  }
}
Task<void> recomputes_beside_a_loader(World& world) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  Task<void> reads = reads_later(world, mesh), loader = loads(1 + world.rank());
  Task<void> both = when_all(std::move(reads), std::move(loader));
  co_await std::move(both);
}

TEST(GivenUp, ADeferredRedistributeIsIssuedInTheBranchThatAwaitsIt) {
  for (int round = 0; round < 5; ++round) {
    const std::vector<End> ends = ends_of(quick_options(2), recomputes_beside_a_loader);
    for (const End& end : ends) EXPECT_FALSE(end.failed) << end;
  }
}

Task<void> awaits_a_deferred_one(World& world) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  if (world.rank() == 1) testing::compute_for(4s);
  const Tensor ones = counting(world, Shape{4}, DType::F32);
  const DTensor terms = from_local(ones, mesh, Partial());
  std::optional<Redistribution> later;
  {
    const DeferRedistributes deferring;
    later.emplace(terms.redistribute(Replicate()));
  }
  co_await *later;
}

TEST(GivenUp, ADeferredRedistributeHasADeadline) {
  const std::vector<End> ends = simulated_ends_of(quick_options(2), awaits_a_deferred_one);
  EXPECT_TRUE(ends[0].is(ErrorKind::Timeout)) << ends[0];
}

Task<void> asks(World& world, int times, int& got) {
  for (; got < times; ++got) co_await world.stop_requested();
  if (world.rank() == 1) co_await sleep_for(60ms);
}
Task<void> yields_then_fails() {
  co_await yield();
  throw std::runtime_error("boom");
}
Task<void> gives_up_asking(World& world, int& got) {
  int once = 0, twice = 1;
  if (world.rank() == 1) co_await sleep_for(20ms);
  Task<void> first = asks(world, 1, once);
  co_await std::move(first);
  Task<void> second = asks(world, 2, twice), fails = yields_then_fails();
  Task<void> both = when_all(std::move(second), std::move(fails));
  try {
    co_await std::move(both);
  } catch (const std::runtime_error&) {
  }
  Task<void> more = asks(world, 3, got);
  co_await std::move(more);
}
TEST(GivenUp, ThatAllRanksGaveUpAskingForAStopLetsThemAskAgain) {
  std::stop_source stop;
  WorldOptions options = quick_options(2);
  options.stop = stop.get_token();
  int got[2] = {0, 0};
  const std::vector<End> ends =
      ends_of(options, [&](World& world) { return gives_up_asking(world, got[world.rank()]); });
  for (const End& end : ends) EXPECT_FALSE(end.failed) << end;
  EXPECT_EQ(got[0] + got[1], 6);
}

TEST(GivenUp, ARankThatAsksToStopMoreOftenThanItsPeersGetsATypedError) {
  std::stop_source stop;
  WorldOptions options = quick_options(2);
  options.stop = stop.get_token();
  int got[2] = {0, 0};
  const std::vector<End> ends = ends_of(options, [&](World& world) {
    return asks(world, world.rank() == 0 ? 4 : 1, got[world.rank()]);
  });
  EXPECT_TRUE(ends[0].is(ErrorKind::CommFailed)) << ends[0];
  EXPECT_EQ(got[0], 2);
  EXPECT_FALSE(ends[1].failed) << ends[1];
}

Task<void> spawns_thousands(World& world, int depth, int& issued) {
  if (depth == 0) {
    Task<void> one = sum(*world.communicator(), cell(1));
    co_await std::move(one);
    ++issued;
    co_return;
  }
  std::vector<Task<void>> children;
  for (int i = 0; i < 6; ++i) children.push_back(spawns_thousands(world, depth - 1, issued));
  Task<void> all = when_all(std::move(children));
  co_await std::move(all);
}
// Nested branches keep one order on ranks that share threads and on ranks that do not.
TEST(GivenUp, NestedBranchesIssueInOneOrder) {
  for (const int threads : {0, 1, 2}) {
    WorldOptions options = quick_options(3);
    options.rank_threads = threads;
    std::atomic<int> all{0};
    run_ranks(options, [&](World& world) -> Task<void> {
      return [](World& w, std::atomic<int>& sum_of) -> Task<void> {
        int issued = 0;
        Task<void> task = spawns_thousands(w, 3, issued);
        co_await std::move(task);
        sum_of += issued;
      }(world, all);
    });
    EXPECT_EQ(all, 3 * 216);
  }
}

}  // namespace
}  // namespace coshard::testing
