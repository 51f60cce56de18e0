// A rank outside the mesh holds empty tensors and issues nothing (as in PyTorch).
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;
using Values = std::vector<double>;

TEST(Outside, FactoriesGiveMembersTheirShardAndOthersNothing) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh two = DeviceMesh::from_ranks(world, {0, 3}, {2}, {"tp"});
    const DeviceMesh three = DeviceMesh::from_ranks(world, {0, 1, 3}, {3}, {"tp"});
    const int r = world.rank();
    CountingObserver seen(world);
    for (const DTensor& x : {zeros(two, Shard(0), {32, 3}), rand(two, Shard(0), {32, 3}),
                             empty(two, Shard(0), {32, 3}), full(two, Shard(0), {32, 3}, 2)}) {
      EXPECT_EQ(x.local_shape(), r == 0 || r == 3 ? (Shape{16, 3}) : (Shape{0}));
      EXPECT_EQ(x.shape(), (Shape{32, 3}));
      EXPECT_EQ(x.ndim(), 2);
    }
    const Shape rows[] = {{11, 3}, {11, 3}, {0}, {10, 3}};
    EXPECT_EQ(ones(three, Shard(0), {32, 3}).local_shape(), rows[r]);
    EXPECT_EQ(seen.total(), 0);
    co_return;
  });
}

TEST(Outside, RandomNumbersStayInStep) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh one = DeviceMesh::from_ranks(world, {1}, {1}, {"tp"});
    manual_seed(5);
    rand(one, Replicate(), {4});
    EXPECT_EQ(random_state().next_stream, 1U);
    co_return;
  });
}

TEST(Outside, TensorsComeAndGoEmpty) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = DeviceMesh::from_ranks(world, {0, 2}, {2}, {"tp"});
    const Tensor whole = counting(world, {4, 2});
    const bool here = mesh.contains_this_rank();
    CountingObserver seen(world);
    const DTensor x = distribute_tensor(whole, mesh, Shard(0));
    EXPECT_EQ(x.local_shape(), here ? (Shape{2, 2}) : (Shape{0}));
    const DTensor y = x.redistribute(Shard(1)).tensor();
    EXPECT_EQ(y.layout(), Layout(Shard(1)));
    EXPECT_EQ(to_local(y).shape(), here ? (Shape{4, 1}) : (Shape{0}));
    EXPECT_EQ(full_tensor(y).to_vector(), here ? whole.to_vector() : Values{});
    FromLocalOptions options;
    options.run_check = true;
    const DTensor z = from_local(whole, mesh, Replicate(), options);
    EXPECT_EQ(z.local_shape(), here ? (Shape{4, 2}) : (Shape{0}));
    EXPECT_EQ(seen.total(), here ? 5 : 0);
    EXPECT_EQ(ones(mesh, Replicate(), {1}).item(), here ? 1 : 0);
    co_return;
  });
}

TEST(Outside, OperatorsRunOnMembersAlone) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = DeviceMesh::from_ranks(world, {0, 2}, {2}, {"tp"});
    const bool here = mesh.contains_this_rank();
    CountingObserver seen(world);
    const DTensor x = distribute_tensor(ones(world.device(), {3, 4}), mesh, Shard(0));
    const DTensor y = add(x, 2);
    EXPECT_EQ(y.shape(), (Shape{3, 4}));
    EXPECT_EQ(y.local_shape(), here ? (Shape{world.rank() == 0 ? 2 : 1, 4}) : (Shape{0}));
    const DTensor total = sum(x).redistribute(Replicate()).tensor();
    EXPECT_EQ(total.item(), here ? 12 : 0);
    for (const DTensor& piece : split(x, 2, 1)) {
      EXPECT_EQ(piece.shape(), (Shape{3, 2}));
      EXPECT_EQ(piece.local_numel() > 0, here);
    }
    EXPECT_EQ(seen.total(), here ? 2 : 0);  // a scatter and an all_reduce
    co_return;
  });
}

TEST(Outside, ATrainingStepRunsEverywhere) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = DeviceMesh::from_ranks(world, {1, 2}, {2}, {"tp"});
    const bool here = mesh.contains_this_rank();
    CountingObserver seen(world);
    DTensor w = distribute_tensor(counting(world, {4, 2}), mesh, Shard(0), std::nullopt);
    w.set_requires_grad(true);
    const DTensor loss = sum(mul(w, w));
    co_await backward(loss, BackwardOptions{.retain_graph = true});
    EXPECT_EQ(w.grad().local_shape(), w.local_shape());
    EXPECT_EQ(w.grad().to_vector(), mul(w, 2).to_vector());
    const Tensor plain = to_local(loss.redistribute(Replicate()).tensor());
    co_await backward(plain);
    EXPECT_EQ(seen.total() > 0, here);
  });
}

TEST(Outside, GradientsStopThere) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = DeviceMesh::from_ranks(world, {0, 2}, {2}, {"tp"});
    Tensor local = counting(world, {2, 2});
    local.set_requires_grad(true);
    const DTensor x = from_local(local, mesh, Shard(0));
    const DTensor whole = x.redistribute(Replicate()).tensor();
    run_backward(whole, ones(mesh, Replicate(), whole.shape(), DType::F64));
    EXPECT_EQ(local.grad().defined(), mesh.contains_this_rank());
    if (!local.grad().defined()) co_return;
    EXPECT_EQ(local.grad().to_vector(), Values(4, 1.0));
  });
}

}  // namespace
}  // namespace coshard
