// Arithmetic: broadcasting, numbers on both sides, gradients.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/explicit_redistribution.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::counting;
using testing::on_ranks;
using testing::Values;

TEST(Broadcasting, SumsTheGradientOverStretchedDimensions) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor row = counting(world, {3});
    Tensor column = counting(world, {2, 1});
    row.set_requires_grad(true);
    column.set_requires_grad(true);
    run_backward(sum(row * column));
    EXPECT_EQ(row.grad().to_vector(), (Values{3, 3, 3}));
    EXPECT_EQ(column.grad().to_vector(), (Values{6, 6}));
    EXPECT_THROW(add(row, counting(world, {2})), Error);
    EXPECT_EQ(add(row, counting(world, {3}, DType::F32)).dtype(), DType::F64);
    co_return;
  });
}

TEST(Operators, TakeNumbersOnBothSides) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = counting(world, {4});
    EXPECT_EQ((2.0 * x).to_vector(), (Values{2, 4, 6, 8}));
    EXPECT_EQ((x * 2).to_vector(), (2 * x).to_vector());
    EXPECT_EQ((1 - x).to_vector(), (Values{0, -1, -2, -3}));
    EXPECT_EQ((1 + x).to_vector(), (x + 1).to_vector());
    EXPECT_EQ((1 / x).to_vector()[3], 0.25);
    EXPECT_EQ((-x).to_vector(), (Values{-1, -2, -3, -4}));
    const Tensor whole = to(x, DType::I64);
    EXPECT_EQ((3 * whole).dtype(), DType::I64);
    EXPECT_EQ((0.5 * whole).dtype(), DType::F32);
    EXPECT_EQ((1 / whole).dtype(), DType::F32);
    co_return;
  });
}

TEST(Operators, HaveTheGradientsOfTheirFunctions) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = counting(world, {2}).requires_grad_();
    co_await (2.0 * x + (1 - x) * x - (-x) + 4 / x).sum().backward();
    EXPECT_EQ(x.grad().to_vector(), (Values{4 - 2 - 4, 4 - 4 - 1}));
  });
}

TEST(Edges, TheGradientOfAtan2IsZeroAtTheOrigin) {
  alone([](World& world) {
    Tensor y = Tensor::from_values(world.device(), {3}, DType::F64, {0.0, 0.0, 1.0});
    y.set_requires_grad(true);
    Tensor x = Tensor::from_values(world.device(), {3}, DType::F64, {0.0, 2.0, 0.0});
    x.set_requires_grad(true);
    run_backward(sum(atan2(y, x)));
    EXPECT_EQ(y.grad().to_vector(), (std::vector<double>{0, 0.5, 0}));
    EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{0, 0, -1}));
  });
}

}  // namespace
}  // namespace coshard
