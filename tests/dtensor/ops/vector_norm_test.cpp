// vector_norm: every order, gradients, layouts.
#include <gtest/gtest.h>

#include <cmath>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::expect_near;
using testing::on_ranks;
using testing::placed;
using testing::values;
using testing::without_moving;

TEST(VectorNorm, IsThatOfItsOrder) {
  alone([](World& world) {
    const Tensor x = values(world, {4}, {3, 0, -4, 0});
    EXPECT_EQ(vector_norm(x).item(), 5);
    EXPECT_EQ(vector_norm(x, 0).item(), 2);
    EXPECT_EQ(vector_norm(x, 1).item(), 7);
    EXPECT_EQ(vector_norm(x, INFINITY).item(), 4);
    EXPECT_EQ(vector_norm(x, -INFINITY).item(), 0);
    EXPECT_NEAR(vector_norm(x, 3).item(), std::cbrt(91), 1e-12);
  });
}

TEST(VectorNorm, HasTheGradientOfADirectionAndNoneAtZero) {
  alone([](World& world) {
    Tensor x = values(world, {2, 2}, {3, -4, 0, 0});
    x.set_requires_grad(true);
    run_backward(sum(vector_norm(x, 2, 1)));
    expect_near(x.grad(), {0.6, -0.8, 0, 0});
  });
}

TEST(VectorNorm, OfACutDimensionIsPartialWhereItsSumsAre) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    const DTensor x = placed(world, mesh, {4, 3}, Shard(0));
    EXPECT_EQ(vector_norm(x, 1, 0).layout(), Layout(Partial()));
    EXPECT_EQ(vector_norm(x, INFINITY, 0).layout(), Layout(Partial(Reduce::Max)));
  });
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor x = distribute_tensor(values(world, {2}, {3, 4}), mesh, Shard(0), std::nullopt);
    EXPECT_EQ(full_tensor(vector_norm(x)).item(), 5);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
