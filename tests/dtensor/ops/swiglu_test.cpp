// swiglu: silu(a) * b in one pass.
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
using testing::values;
using testing::without_moving;

TEST(SwiGluOperator, IsSiluTimesTheOther) {
  alone([](World& world) {
    Tensor a = values(world, {3}, {0, 2, -2}), b = values(world, {3}, {5, 1, 3});
    a.set_requires_grad(true);
    b.set_requires_grad(true);
    const double s = 1 / (1 + std::exp(-2.0));
    expect_near(swiglu(a, b), {0, 2 * s, -6 * (1 - s)});
    run_backward(sum(swiglu(a, b)));
    expect_near(b.grad(), {0, 2 * s, -2 * (1 - s)});
    expect_near(a.grad(), {2.5, s + 2 * s * (1 - s), 3 * ((1 - s) - 2 * s * (1 - s))});
    EXPECT_EQ(refusal([&] { swiglu(a, values(world, {2}, {1, 2})); }).find("swiglu"), 0U);
  });
}

TEST(SwiGluOperator, CutsPassAndASecondPartialDoesToo) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    const DTensor cut = placed(world, mesh, {4, 3}, Shard(1));
    EXPECT_EQ(swiglu(cut, cut).layout(), Layout(Shard(1)));
  });
}

}  // namespace
}  // namespace coshard
