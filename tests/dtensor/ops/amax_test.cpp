// amax and amin: values, shared gradients, layouts.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::placed;
using testing::refusal;
using testing::Values;
using testing::values;
using testing::without_moving;

TEST(Amax, TakesTheExtremesAndSharesTheGradientAmongEquals) {
  alone([](World& world) {
    Tensor x = values(world, {2, 3}, {1, 5, 5, -2, 0, -7});
    x.set_requires_grad(true);
    EXPECT_EQ(amax(x, 1).to_vector(), (Values{5, 0}));
    EXPECT_EQ(amin(x, {0, 1}, true).to_vector(), (Values{-7}));
    EXPECT_EQ(amin(x, {0, 1}, true).shape(), (Shape{1, 1}));
    run_backward(sum(amax(x, 1)));
    EXPECT_EQ(x.grad().to_vector(), (Values{0, 0.5, 0.5, 0, 1, 0}));
  });
}

TEST(Amax, OverACutDimensionIsPartialAndOverNothingIsRefused) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    const DTensor x = placed(world, mesh, {4, 3}, Shard(0));
    EXPECT_EQ(amax(x, 0).layout(), Layout(Partial(Reduce::Max)));
    EXPECT_EQ(amin(x, 0).layout(), Layout(Partial(Reduce::Min)));
    EXPECT_EQ(amax(x, 1).layout(), Layout(Shard(0)));
    EXPECT_EQ(refusal([&] { amax(values(world, {0, 2}, {}), 0); }).find("amax"), 0U);
  });
}

}  // namespace
}  // namespace coshard
