#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/support/ranks.h"

#include <gtest/gtest.h>

namespace coshard {
namespace {

using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;

TEST(DistributeTensor, TakesTheDataOfTheSourceRank) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    const Tensor mine = counting(world, {5, 2}, DType::F64, world.rank() + 1);
    for (int source : {0, 2}) {
      for (Placement p : {Shard(0), Shard(1), Replicate()}) {
        CountingObserver seen(world);
        const DTensor x = distribute_tensor(mine, mesh, p, source);
        EXPECT_EQ(seen.total(), 1);
        EXPECT_EQ(full_tensor(x).to_vector(),
                  counting(world, {5, 2}, DType::F64, source + 1).to_vector());
      }
    }
    CountingObserver seen(world);
    const DTensor own = distribute_tensor(mine, mesh, Shard(0), std::nullopt);
    EXPECT_EQ(seen.total(), 0);
    EXPECT_NE(own.storage(), mine.storage());
    EXPECT_THROW(distribute_tensor(mine, mesh, Shard(0), 3), Error);
    co_return;
  });
}

TEST(DistributeTensor, KeepsRequiresGradAndIsALeaf) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    Tensor full = counting(world, {4, 2});
    full.set_requires_grad(true);
    const DTensor x = distribute_tensor(full, mesh, Shard(0));
    EXPECT_TRUE(x.requires_grad());
    EXPECT_TRUE(x.is_leaf());
    co_return;
  });
}

TEST(DistributeTensor, RefusesWhatAnOperatorMadeOnTheTape) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    Tensor x = counting(world, {4});
    x.set_requires_grad(true);
    const Tensor y = mul(x, x);
    EXPECT_THROW(distribute_tensor(y, mesh, Shard(0)), Error);
    EXPECT_EQ(distribute_tensor(y.detach(), mesh, Shard(0)).numel(), 4);
    const NoGradGuard off;
    EXPECT_EQ(distribute_tensor(mul(x, x), mesh, Shard(0)).numel(), 4);
    co_return;
  });
}

TEST(DistributeTensor, GivesADTensorThatLiesSoAlreadyItself) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor x = distribute_tensor(counting(world, {4}), mesh, Shard(0));
    EXPECT_EQ(distribute_tensor(x, mesh, Shard(-1)).id(), x.id());
    EXPECT_THROW(distribute_tensor(x, mesh, Replicate()), Error);
    co_return;
  });
}

TEST(DistributeTensor, APartialReducesToTheTensor) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    const Tensor full = counting(world, {4, 2});
    for (Reduce reduce : {Reduce::Sum, Reduce::Avg, Reduce::Min, Reduce::Max})
      EXPECT_EQ(full_tensor(distribute_tensor(full, mesh, Partial(reduce))).to_vector(),
                full.to_vector());
    co_return;
  });
}

TEST(Item, RefusesAValueThatThisRankDoesNotHold) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor x = distribute_tensor(counting(world, {1}), mesh, Partial());
    try {
      x.item();
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("P(sum)"), std::string::npos);
    }
    EXPECT_EQ(x.redistribute(Replicate()).tensor().item(), 1);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
