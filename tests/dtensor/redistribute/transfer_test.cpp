#include <coshard/dtensor/redistribute/transfer.h>

#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/error.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;

TEST(Transfer, EveryRankOfTheOtherMeshGetsItsPart) {
  on_ranks(5, [](World& world) -> Task<void> {
    const DeviceMesh one = DeviceMesh::from_ranks(world, {0, 1, 2, 3}, {2, 2});
    const DeviceMesh other = DeviceMesh::from_ranks(world, {4, 2, 1}, {3});  // 1 and 2 are in both
    for (const Shape& shape : {Shape{5, 4}, Shape{1, 3}, Shape{0, 2}}) {
      const Tensor full = counting(world, shape);
      for (const Layout& from : {Layout(Shard(0), Shard(1)), Layout(Replicate(), Shard(0)),
                                 Layout(Replicate(), Replicate()), Layout(Shard(1), Shard(1))}) {
        for (const Placement to : {Shard(0), Shard(1), Replicate(), StridedShard(0, 2)}) {
          const DTensor x = distribute_tensor(full, one, from, std::nullopt);
          CountingObserver seen(world);
          const DTensor y = redistribute(x, other, to).tensor();
          EXPECT_EQ(y.to_vector(), distribute_tensor(full, other, to, std::nullopt).to_vector())
              << from << to << full;
          EXPECT_EQ(seen.total(), 1);
          const DTensor back = redistribute(y, one, from).tensor();
          EXPECT_EQ(back.to_vector(), x.to_vector()) << from << to << full;
        }
      }
    }
    co_return;
  });
}

TEST(Transfer, OfANumberReachesEveryRankOfTheOtherMeshAndItsGradientComesBack) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh one = DeviceMesh::from_ranks(world, {2, 0, 1}, {3});
    const DeviceMesh other = DeviceMesh::from_ranks(world, {3, 1}, {2});  // 1 is in both
    const auto number = [&](double value, const DeviceMesh& mesh, Placement placement) {
      const std::vector<double> values{value};
      const Tensor whole = Tensor::from_values(world.device(), Shape{}, DType::F64, values);
      return distribute_tensor(whole, mesh, placement, std::nullopt);
    };
    for (const Placement from : {Replicate(), Partial()}) {
      DTensor x = number(7, one, from).detach();
      x.set_requires_grad(true);
      const DTensor y = redistribute(x, other, Replicate()).tensor();
      EXPECT_EQ(y.to_vector(), number(7, other, Replicate()).to_vector());
      run_backward(y, number(5, other, Replicate()));
      EXPECT_EQ(x.grad().to_vector(), number(5, one, Replicate()).to_vector());
    }
    co_return;
  });
}

TEST(Transfer, ItsGradientComesBack) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh one = DeviceMesh::from_ranks(world, {0, 1}, {2});
    const DeviceMesh other = DeviceMesh::from_ranks(world, {2, 3}, {2});
    const Tensor full = counting(world, {3, 2});
    DTensor x = distribute_tensor(full, one, Shard(0), std::nullopt);
    x.set_requires_grad(true);
    const DTensor y = redistribute(x, other, Shard(1)).tensor();
    const DTensor dy = distribute_tensor(full, other, Shard(1), std::nullopt);
    run_backward(y, dy);
    EXPECT_EQ(x.grad().layout(), Layout(Shard(0)));
    EXPECT_EQ(x.grad().to_vector(), x.to_vector());
    co_return;
  });
}

TEST(Transfer, WhatHasNoMeaningIsRefused) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh one = init_device_mesh(world, {2}, {"tp"});
    const DeviceMesh other = DeviceMesh::from_ranks(world, {1, 0}, {2});
    const Tensor full = counting(world, {3, 2});
    const DTensor x = distribute_tensor(full, one, Shard(0), std::nullopt);
    EXPECT_THROW(redistribute(full, other, Shard(0)), Error);
    EXPECT_THROW(redistribute(x, other, Layout(Shard(0), Shard(1))), Error);
    EXPECT_THROW(redistribute(x, other, Shard(2)), Error);
    EXPECT_THROW(redistribute(x, other, Partial()), Error);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
