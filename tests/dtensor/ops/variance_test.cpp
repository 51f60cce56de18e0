// var and stdev: values, gradients, and what a cut dimension costs.
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
using testing::refusal;
using testing::Values;
using testing::values;
using testing::without_moving;

TEST(Variance, DividesByCountLessCorrection) {
  alone([](World& world) {
    Tensor x = values(world, {4}, {1, 2, 4, 5});
    x.set_requires_grad(true);
    expect_near(var(x), {10.0 / 3});
    expect_near(var(x, {}, 0), {2.5});
    expect_near(stdev(x, 0, 0, true), {std::sqrt(2.5)});
    run_backward(var(x, {}, 0));
    expect_near(x.grad(), {-1, -0.5, 0.5, 1});
    const Tensor integers = values(world, {2}, {1, 2}, DType::I64);
    EXPECT_EQ(refusal([&] { var(integers); }).find("var: i64[2]"), 0U);
    EXPECT_EQ(refusal([&] { stdev(integers); }).find("stdev: i64[2]"), 0U);
  });
}

TEST(Variance, OfEqualElementsHasNoGradient) {
  alone([](World& world) {
    Tensor x = values(world, {3}, {7, 7, 7});
    x.set_requires_grad(true);
    run_backward(stdev(x));
    EXPECT_EQ(x.grad().to_vector(), (Values{0, 0, 0}));
  });
}

TEST(Variance, GathersACutDimensionOnly) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    EXPECT_EQ(var(placed(world, mesh, {4, 3}, Shard(1)), 0).layout(), Layout(Shard(0)));
  });
  without_moving(
      [](World& world, const DeviceMesh& mesh) {
        EXPECT_FALSE(var(placed(world, mesh, {4, 3}, Shard(0)), 0).layout().has_partial());
      },
      1);
}

}  // namespace
}  // namespace coshard
