// prod: values, gradients with zeros, layouts.
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

TEST(Prod, MultipliesAndItsGradientIsRightWithZeros) {
  alone([](World& world) {
    Tensor x = values(world, {3, 2}, {2, 3, 0, 4, 5, 6});
    x.set_requires_grad(true);
    EXPECT_EQ(prod(x, 0).to_vector(), (Values{0, 72}));
    EXPECT_EQ(prod(x, 1, true).shape(), (Shape{3, 1}));
    run_backward(sum(prod(x, 0)));
    EXPECT_EQ(x.grad().to_vector(), (Values{0, 24, 10, 18, 0, 12}));
    EXPECT_EQ(prod(values(world, {2}, {3, 4}, DType::I32)).dtype(), DType::I64);
    EXPECT_EQ(refusal([&] { prod(x, 2); }).find("prod"), 0U);
  });
}

TEST(Prod, OverACutDimensionIsAPartialProduct) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    const DTensor x = placed(world, mesh, {4, 3}, Shard(0));
    EXPECT_EQ(prod(x, 0).layout(), Layout(Partial(Reduce::Product)));
    EXPECT_EQ(prod(x, 1).layout(), Layout(Shard(0)));
  });
}

}  // namespace
}  // namespace coshard
