// linear: column and row cuts, and its bias.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;
using testing::placed;
using testing::Values;
using testing::without_moving;

TEST(Linear, TakesAVector) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = counting(world, {3});
    x.set_requires_grad(true);
    const Tensor y = linear(x, counting(world, {2, 3}), counting(world, {2}));
    EXPECT_EQ(y.to_vector(), (Values{15, 34}));
    run_backward(sum(y));
    EXPECT_EQ(x.grad().to_vector(), (Values{5, 7, 9}));
    co_return;
  });
}

TEST(LinearLayout, ColumnAndRowCutsNeedNoCollective) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    const DTensor x = placed(world, mesh, {3, 5}, Replicate());
    const DTensor up =
        linear(x, placed(world, mesh, {6, 5}, Shard(0)), placed(world, mesh, {6}, Shard(0)));
    EXPECT_EQ(up.layout(), Layout(Shard(1)));
    const DTensor down = linear(up, placed(world, mesh, {4, 6}, Shard(1)));
    EXPECT_EQ(down.layout(), Layout(Partial()));
  });
}

TEST(LinearLayout, AReplicatedBiasIsAddedOnceToARowwiseProduct) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    CountingObserver seen(world);
    DTensor bias = placed(world, mesh, {4}, Replicate());
    bias.set_requires_grad(true);
    const DTensor y =
        linear(placed(world, mesh, {3, 6}, Shard(1)), placed(world, mesh, {4, 6}, Shard(1)), bias);
    EXPECT_EQ(seen.total(), 0);
    EXPECT_EQ(y.layout(), Layout(Partial()));
    const Tensor whole =
        linear(counting(world, {3, 6}), counting(world, {4, 6}), counting(world, {4}));
    EXPECT_EQ(full_tensor(y.detach()).to_vector(), whole.to_vector());
    seen.reset();
    run_backward(y, placed(world, mesh, {3, 4}, Replicate()));
    EXPECT_EQ(seen.total(), 0);
    EXPECT_EQ(bias.grad().layout(), Layout(Replicate()));
    co_return;
  });
}

}  // namespace
}  // namespace coshard
