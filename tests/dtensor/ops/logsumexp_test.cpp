// logsumexp: values that do not overflow, gradients, layouts.
#include <gtest/gtest.h>

#include <cmath>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::expect_near;
using testing::placed;
using testing::values;
using testing::without_moving;

TEST(LogSumExp, NeitherOverflowsNorUnderflows) {
  alone([](World& world) {
    const Tensor x = values(world, {2, 2}, {1000, 1000, -1000, -1000});
    expect_near(logsumexp(x, 1), {1000 + std::log(2), -1000 + std::log(2)});
    EXPECT_EQ(logsumexp(x, 1, true).shape(), (Shape{2, 1}));
    EXPECT_EQ(logsumexp(values(world, {2}, {0, 0}, DType::I64), 0).dtype(), DType::F32);
    EXPECT_EQ(logsumexp(values(world, {1}, {-INFINITY}), 0).item(), -INFINITY);
  });
}

TEST(LogSumExp, HasTheGradientOfSoftmax) {
  alone([](World& world) {
    Tensor x = values(world, {2}, {0, std::log(3)});
    x.set_requires_grad(true);
    run_backward(logsumexp(x, 0));
    expect_near(x.grad(), {0.25, 0.75});
  });
}

TEST(LogSumExp, LeavesOtherDimensionsCut) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    EXPECT_EQ(logsumexp(placed(world, mesh, {4, 3}, Shard(0)), 1).layout(), Layout(Shard(0)));
  });
}

}  // namespace
}  // namespace coshard
