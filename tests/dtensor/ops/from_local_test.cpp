// from_local: shapes, strides, run_check and gradients.
#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/support/ranks.h"

#include <gtest/gtest.h>

namespace coshard {
namespace {

using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;

// What the world says of `body` that every rank runs; "" when it does not fail.
std::string world_says(int ranks, const std::function<Task<void>(World&)>& body) {
  try {
    on_ranks(ranks, body);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::CommFailed) << error.what();
    return error.what();
  }
  return "";
}

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
    // The second rank has one column, or row, which any stride fits.
    const std::int64_t mine = world.rank() == 0 ? 2 : 1;
    options.shape = Shape{4, 3};
    options.stride = Strides{3, 1};
    const DTensor columns = from_local(counting(world, {4, mine}), mesh, Shard(1), options);
    EXPECT_EQ(logical_strides(columns), (Strides{3, 1}));
    options.stride = Strides{3};
    EXPECT_THROW(from_local(counting(world, {4, mine}), mesh, Shard(1), options), Error);
    options.shape = Shape{3, 4};
    options.stride = Strides{1, 3};
    EXPECT_EQ(from_local(t(counting(world, {4, mine})), mesh, Shard(0), options).shape(),
              (Shape{3, 4}));
    co_return;
  });
}

TEST(FromLocal, AWrongStrideOfUnevenPartsIsToldWhereItShows) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    FromLocalOptions options;
    options.shape = Shape{5, 4};
    options.stride = Strides{1, 5};
    const bool one_row = world.rank() == 2;
    const Tensor rows = counting(world, {one_row ? 1 : 2, 4});
    if (one_row) {
      EXPECT_NO_THROW(from_local(rows, mesh, Shard(0), options));
    } else {
      EXPECT_THROW(from_local(rows, mesh, Shard(0), options), Error);
    }
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

TEST(FromLocal, UnevenPartsWithoutAShapeFailAtTheNextCollective) {
  const std::string text = world_says(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor mine = ones(world.device(), {world.rank() == 0 ? 3 : 2, 2});
    const DTensor x = from_local(mine, mesh, Shard(0));
    co_await x.redistribute(Replicate());
  });
  EXPECT_NE(text.find("rank 0 last called from_local without `shape`, which implies size 6"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("which implies size 4 in dimension 0"), std::string::npos) << text;
}

TEST(FromLocal, UnevenPartsWithoutAShapeFailAtACollectiveOverSeveralMeshDimensions) {
  const std::string text = world_says(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const Tensor mine = ones(world.device(), {world.rank() < 2 ? 3 : 2, 2});
    const DTensor total = sum(from_local(mine, mesh, Layout(Shard(0), Shard(1))));
    co_await total.redistribute(Layout(Replicate(), Replicate()));
  });
  EXPECT_NE(text.find("called from_local without `shape`"), std::string::npos) << text;
}

// Also where the geometry of the collective does not tell.
TEST(FromLocal, UnevenPartsWithoutAShapeFailAtAnyCollective) {
  const std::string text = world_says(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor mine = ones(world.device(), {world.rank() == 0 ? 3 : 2, 2});
    const DTensor total = sum(from_local(mine, mesh, Shard(0)));
    co_await total.redistribute(Replicate());
  });
  EXPECT_NE(text.find("which implies size 4 in dimension 0"), std::string::npos) << text;
}

}  // namespace
}  // namespace coshard
