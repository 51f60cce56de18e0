#include <coshard/dtensor/distribute.h>

#include <gtest/gtest.h>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/random.h>
#include <coshard/dtensor/tape.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;

TEST(FromLocal, InfersTheLogicalShapeFromEvenShards) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor local = counting(world, {3, 4});
    CountingObserver seen(world);
    EXPECT_EQ(from_local(local, mesh, Shard(0)).shape(), (Shape{6, 4}));
    EXPECT_EQ(from_local(local, mesh, Shard(-1)).shape(), (Shape{3, 8}));
    EXPECT_EQ(from_local(local, mesh, Partial()).shape(), (Shape{3, 4}));
    EXPECT_EQ(seen.total(), 0);
    co_return;
  });
}

TEST(FromLocal, AnExplicitShapeAllowsUnevenShardsAndIsChecked) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor local = counting(world, {world.rank() == 0 ? 3 : 2, 4});
    FromLocalOptions options;
    options.shape = Shape{5, 4};
    EXPECT_EQ(from_local(local, mesh, Shard(0), options).shape(), (Shape{5, 4}));
    options.shape = Shape{8, 4};
    EXPECT_THROW(from_local(local, mesh, Shard(0), options), Error);
    co_return;
  });
}

TEST(FromLocal, AStrideIsComparedWithTheOrderOfTheParts) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor local = counting(world, {8, 4});
    EXPECT_EQ(logical_strides(from_local(local, mesh, Shard(0))), (Strides{4, 1}));
    EXPECT_EQ(logical_strides(from_local(local, mesh, Shard(1))), (Strides{8, 1}));
    const Tensor turned = permute(counting(world, {4, 8, 2}), {1, 2, 0});  // strides 2, 1, 16
    EXPECT_EQ(logical_strides(from_local(turned, mesh, Shard(1))), (Strides{4, 1, 32}));
    FromLocalOptions options;
    options.stride = Strides{8, 1};
    EXPECT_THROW(from_local(local, mesh, Shard(1), options), Error);  // without a shape
    options.shape = Shape{8, 8};
    EXPECT_EQ(from_local(local, mesh, Shard(1), options).shape(), (Shape{8, 8}));
    options.stride = Strides{1, 8};
    EXPECT_THROW(from_local(local, mesh, Shard(1), options), Error);
    co_return;
  });
}

TEST(FromLocal, TheGradientLiesWhereTheValueDoes) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    FromLocalOptions options;
    options.grad_placements = Layout(Shard(0));
    EXPECT_THROW(from_local(counting(world, {2, 2}), mesh, Replicate(), options), Error);
    options.grad_placements = Layout(Shard(-2));
    EXPECT_EQ(from_local(counting(world, {2, 2}), mesh, Shard(0), options).shape(), (Shape{4, 2}));
    const DTensor x = ones(mesh, Shard(0), {4, 2});
    EXPECT_THROW(to_local(x, Layout(Replicate())), Error);
    EXPECT_THROW(to_local(x, Layout(Shard(0), Shard(0))), Error);
    co_return;
  });
}

TEST(FromLocal, RunCheckTakesReplicasFromTheFirstRank) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    const Tensor local = counting(world, {2, 2}, DType::F64, world.rank() + 1);
    FromLocalOptions options;
    options.run_check = true;
    CountingObserver seen(world);
    const DTensor x = from_local(local, mesh, Replicate(), options);
    EXPECT_EQ(x.to_vector(), (std::vector<double>{1, 2, 3, 4}));
    EXPECT_EQ(seen.count(CollectiveKind::Broadcast), 1);
    co_return;
  });
}

// PyTorch's table (A53): placement forward, placement of the incoming gradient, all-reduces in
// backward.
TEST(FromLocal, ItsGradientFollowsTheTable) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    struct Case {
      Placement forward, gradient;
      int all_reduces;
      double each;  // gradient of every local element
    };
    const Case cases[] = {{Shard(0), Shard(0), 0, 1},
                          {Replicate(), Replicate(), 0, 1},
                          {Replicate(), Partial(), 1, 2},
                          {Partial(), Replicate(), 0, 1},
                          {Partial(), Partial(), 1, 2}};
    for (const Case& c : cases) {
      Tensor local = counting(world, {2, 2});
      local.set_requires_grad(true);
      const DTensor x = from_local(local, mesh, c.forward);
      const DTensor dy = from_local(ones(world.device(), {2, 2}, DType::F64), mesh, c.gradient);
      CountingObserver seen(world);
      run_backward(x, dy);
      EXPECT_EQ(seen.count(CollectiveKind::AllReduce), c.all_reduces);
      EXPECT_EQ(seen.total(), c.all_reduces);
      EXPECT_EQ(local.grad().to_vector(), std::vector<double>(4, c.each))
          << c.forward << c.gradient;
    }
    co_return;
  });
}

TEST(FromLocal, GradPlacementsKeepAPartialGradientLocal) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    Tensor local = counting(world, {2, 2});
    local.set_requires_grad(true);
    FromLocalOptions options;
    options.grad_placements = Layout(Partial());
    const DTensor x = from_local(local, mesh, Replicate(), options);
    CountingObserver seen(world);
    run_backward(x, from_local(ones(world.device(), {2, 2}, DType::F64), mesh, Partial()));
    EXPECT_EQ(seen.total(), 0);
    EXPECT_EQ(local.grad().to_vector(), std::vector<double>(4, 1.0));
    co_return;
  });
}

TEST(ToLocal, GradPlacementsSayHowThePerRankGradientsAreRead) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    DTensor x = distribute_tensor(counting(world, {2, 2}), mesh, Replicate(), std::nullopt);
    x.set_requires_grad(true);
    run_backward(to_local(x, Layout(Partial())), ones(world.device(), {2, 2}, DType::F64));
    EXPECT_EQ(full_tensor(x.grad()).to_vector(), std::vector<double>(4, 2.0));
    co_return;
  });
}

TEST(FullTensor, GathersAndIsReady) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    const Tensor full = counting(world, {7, 2});
    const Tensor back = full_tensor(distribute_tensor(full, mesh, Shard(0)));
    EXPECT_FALSE(back.in_flight());
    EXPECT_FALSE(back.is_distributed());
    EXPECT_EQ(back.to_vector(), full.to_vector());
    co_return;
  });
}

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
