// Faults that random programs of DTensors found, each as a program of its own.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/launch/simulate.h>
#include "dtensor/redistribute/deferred.h"
#include "tests/dtensor/redistribute/sums.h"
#include "tests/support/ranks.h"

namespace coshard::same_on_all_ranks {
namespace {
using namespace std::chrono_literals;
using testing::counting;
using testing::on_ranks;
using testing::term;

// --- gradients of sibling walks that meet at a leaf ---

// The leaf's gradient is under way, as an all_gather, when the walk ends.
Task<void> walk_back(DTensor leaf, double gradient) {
  const DTensor rows = leaf.redistribute(Shard(0)).tensor();
  Task<void> walk = backward(rows, full(leaf.mesh(), Layout(Shard(0)), {4}, gradient, DType::F64));
  co_await std::move(walk);
}
Task<void> meets_at_a_leaf(World& world) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  DTensor leaf = distribute_tensor(counting(world, {4}), mesh, Replicate(), std::nullopt);
  leaf.set_requires_grad(true);
  Task<void> before = walk_back(leaf, 1);
  co_await std::move(before);
  Task<void> woven = when_all(walk_back(leaf, 10), walk_back(leaf, 100), walk_back(leaf, 1000));
  co_await std::move(woven);
  EXPECT_EQ(to_local(leaf.grad()).to_vector(), std::vector<double>(4, 1111));
}
TEST(WovenWalks, GradientsThatMeetAtALeafAddUp) { on_ranks(2, meets_at_a_leaf); }

// --- what an await waits for ---

Task<void> takes_shards(World& world, DeviceMesh mesh, Layout from, int shards) {
  const DTensor x = distribute_tensor(counting(world, {5, 3}), mesh, from, std::nullopt);
  Redistribution whole = x.redistribute(Replicate());
  int taken = 0;
  std::int64_t rows = 0;
  for (;;) {
    const std::optional<ArrivedShard> shard = co_await whole.next_shard();
    if (!shard) break;
    ++taken;
    rows += shard->size;
  }
  EXPECT_EQ(taken, shards) << "rank " << world.rank();
  if (mesh.contains_this_rank()) {
    EXPECT_EQ(rows, 5) << "rank " << world.rank();
  }
}
Task<void> takes_shards_inside_and_outside(World& world) {
  const DeviceMesh inner = DeviceMesh::from_ranks(world, {0, 2}, {2}, {"inner"});
  Task<void> gathered = takes_shards(world, inner, Layout(Shard(0)), 2);
  co_await std::move(gathered);
  Task<void> there = takes_shards(world, inner, Layout(Replicate()), 1);
  co_await std::move(there);
}
TEST(NextShard, GivesEveryRankAsManyAlsoOutsideTheMesh) {
  on_ranks(3, takes_shards_inside_and_outside);
}

// Its parts are no blocks of the result: the first shard is the whole.
Task<void> multiplies_shards(World& world) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  const DTensor x =
      distribute_tensor(counting(world, {8, 6}), mesh, StridedShard(0, 2), std::nullopt);
  const Tensor w = counting(world, {6, 3});
  Redistribution whole = x.redistribute(Replicate());
  std::int64_t rows = 0;
  for (;;) {
    const std::optional<ArrivedShard> shard = co_await whole.next_shard();
    if (!shard) break;
    rows += matmul(shard->tensor, w).size(0);
  }
  EXPECT_EQ(rows, 8);
}
TEST(NextShard, GivesShardsThatCanBeMultiplied) { on_ranks(2, multiplies_shards); }

Task<void> bounded(Task<void> task, std::chrono::milliseconds limit) {
  const auto whole = [&task](std::stop_token) { return std::move(task); };
  Task<void> in_time = with_deadline(limit, "a sum", whole);
  try {
    co_await std::move(in_time);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Timeout) << error.what();
  }
}
Task<void> meet(World& world) {
  Collective c;
  c.kind = CollectiveKind::Barrier;
  const Work work = world.communicator()->issue(c);
  co_await work;
}
Task<void> reads_later(World& world, DeviceMesh mesh) {
  std::optional<Redistribution> later;
  {
    const DeferRedistributes deferring;
    later.emplace(term(world, mesh, 1).redistribute(Replicate()));
  }
  co_await *later;
}
// The clocks of ranks differ: one gives up the first wait before the second, one both at once.
Task<void> defers_behind_a_wait(World& world, int& done) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  const auto second = world.rank() == 0 ? 110ms : 100ms;
  Task<void> first = bounded(meet(world), 100ms);
  Task<void> both = when_all(std::move(first), bounded(reads_later(world, mesh), second));
  co_await std::move(both);
  const Redistribution last = term(world, mesh, 1).redistribute(Replicate());
  co_await last;
  ++done;
}
TEST(Deferred, IsIssuedWhereItIsAwaitedWhateverIsBeforeIt) {
  WorldOptions options = testing::test_options(2);
  options.device = DeviceKind::Cpu;
  options.communicator = "local";
  options.timeout = 24h;
  options.link = Link{3'600'000'000, 1'000};
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    int done = 0;
    EXPECT_NO_THROW(simulate(
        options, [&](World& world) { return defers_behind_a_wait(world, done); }, seed));
    EXPECT_EQ(done, 2) << "seed " << seed;
  }
}

}  // namespace
}  // namespace coshard::same_on_all_ranks
