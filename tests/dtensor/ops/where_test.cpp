// where and masked_fill: values, gradients, layouts.
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

TEST(Where, TakesEachElementFromOneSideAndSendsItsGradientThere) {
  alone([](World& world) {
    const Tensor mask = values(world, {3}, {1, 0, 1}, DType::Bool);
    Tensor x = values(world, {3}, {1, 2, 3}), y = values(world, {1}, {9});
    x.set_requires_grad(true);
    y.set_requires_grad(true);
    const Tensor z = where(mask, x, y);
    EXPECT_EQ(z.to_vector(), (Values{1, 9, 3}));
    run_backward(sum(z));
    EXPECT_EQ(x.grad().to_vector(), (Values{1, 0, 1}));
    EXPECT_EQ(y.grad().to_vector(), (Values{1}));
    EXPECT_EQ(refusal([&] { where(x.detach(), x, y); }).find("where"), 0U);
  });
}

TEST(Where, MaskedFillKeepsDtypeAndDropsTheGradientUnderTheMask) {
  alone([](World& world) {
    const Tensor mask = values(world, {2}, {0, 1}, DType::Bool);
    Tensor x = values(world, {2}, {1, 2}, DType::F32);
    x.set_requires_grad(true);
    const Tensor y = masked_fill(x, mask, -5);
    EXPECT_EQ(y.to_vector(), (Values{1, -5}));
    EXPECT_EQ(y.dtype(), DType::F32);
    run_backward(sum(y));
    EXPECT_EQ(x.grad().to_vector(), (Values{1, 0}));
  });
}

TEST(Where, PartialsOfBothSidesStayPartial) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    const DTensor mask = gt(placed(world, mesh, {4, 3}, Replicate()), 5);
    const DTensor p = placed(world, mesh, {4, 3}, Partial());
    EXPECT_EQ(where(mask, p, p).layout(), Layout(Partial()));
    EXPECT_EQ(masked_fill(p, mask, 0).layout(), Layout(Partial()));
    const DTensor cut = placed(world, mesh, {4, 3}, Shard(0));
    EXPECT_EQ(where(mask, cut, cut).layout(), Layout(Shard(0)));
  });
}

}  // namespace
}  // namespace coshard
