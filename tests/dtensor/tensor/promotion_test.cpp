// The dtype of what operators of several dtypes give.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"
#include "tests/dtensor/ops/pointwise_inputs.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::of;
using testing::on_ranks;
using testing::Values;

// --- dtypes ---

TEST(Promotion, CategoriesDecideFirstThenDimensionsThenWidth) {
  on_ranks(1, [](World& world) -> Task<void> {
    const auto tensor = [&](DType dtype, const Shape& shape) {
      return zeros(world.device(), shape, dtype);
    };
    struct Case {
      DType a, b, both_with_dims, b_without;
    };
    for (const Case& c : {Case{DType::I64, DType::F32, DType::F32, DType::F32},
                          {DType::F32, DType::F64, DType::F64, DType::F32},
                          {DType::BF16, DType::I64, DType::BF16, DType::BF16},
                          {DType::BF16, DType::F32, DType::F32, DType::BF16},
                          {DType::BF16, DType::F16, DType::F32, DType::BF16},
                          {DType::F16, DType::I64, DType::F16, DType::F16},
                          {DType::F16, DType::F32, DType::F32, DType::F16},
                          {DType::Bool, DType::I32, DType::I32, DType::I32},
                          {DType::I32, DType::I64, DType::I64, DType::I32},
                          {DType::I32, DType::F64, DType::F64, DType::F64},
                          {DType::I32, DType::Bool, DType::I32, DType::I32}}) {
      EXPECT_EQ(result_type(tensor(c.a, {2}), tensor(c.b, {2})), c.both_with_dims);
      EXPECT_EQ(result_type(tensor(c.b, {2}), tensor(c.a, {2})), c.both_with_dims);
      EXPECT_EQ(result_type(tensor(c.a, {2}), tensor(c.b, {})), c.b_without);
    }
    EXPECT_EQ(result_type(tensor(DType::I64, {2}), 2), DType::I64);
    EXPECT_EQ(result_type(tensor(DType::I32, {2}), 2), DType::I32);
    EXPECT_EQ(result_type(tensor(DType::I32, {}), 2.0), DType::F32);
    EXPECT_EQ(result_type(tensor(DType::Bool, {2}), 2), DType::I64);
    EXPECT_EQ(result_type(tensor(DType::BF16, {2}), 2.0), DType::BF16);
    EXPECT_EQ(result_type(tensor(DType::Bool, {2}), true), DType::Bool);
    co_return;
  });
}

TEST(Promotion, OperatorsComputeInTheCommonTypeAndGiveGradientsInEachOnes) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor ints = of(world, {7, -7, 2}, DType::I64);
    EXPECT_EQ(div(ints, 2).dtype(), DType::F32);
    EXPECT_EQ(div(ints, 2).to_vector(), (Values{3.5, -3.5, 1}));
    EXPECT_EQ(remainder(ints, 3).to_vector(), (Values{1, 2, 2}));
    EXPECT_EQ(add(ints, 2).dtype(), DType::I64);
    EXPECT_EQ(add(ints, 0.5).to_vector(), (Values{7.5, -6.5, 2.5}));
    EXPECT_EQ(exp(ints).dtype(), DType::F32);
    EXPECT_EQ(pow(ints, 2).to_vector(), (Values{49, 49, 4}));
    EXPECT_EQ(clamp(ints, -1, std::nullopt).to_vector(), (Values{7, -1, 2}));
    EXPECT_EQ(gt(ints, 1.5).dtype(), DType::Bool);
    const Tensor flags = of(world, {1, 0, 1}, DType::Bool);
    EXPECT_EQ(mul(flags, ints).to_vector(), (Values{7, 0, 2}));
    EXPECT_EQ(add(flags, flags).dtype(), DType::Bool);
    EXPECT_EQ(logical_and(ints, flags).to_vector(), (Values{1, 0, 1}));
    EXPECT_THROW(sub(flags, flags), Error);
    EXPECT_THROW(neg(flags), Error);
    EXPECT_THROW(pow(ints, -1), Error);
    EXPECT_THROW(remainder(ints, 0), Error);
    EXPECT_THROW(add(ints, ints, 0.5), Error);
    EXPECT_THROW(where(ints, ints, ints), Error);
    EXPECT_THROW(clamp(ints, std::nullopt), Error);
    Tensor narrow = of(world, {1, 2, 3}, DType::BF16), wide = of(world, {4, 5, 6}, DType::F32);
    narrow.set_requires_grad(true);
    wide.set_requires_grad(true);
    run_backward(sum(mul(narrow, wide)));
    EXPECT_EQ(narrow.grad().dtype(), DType::BF16);
    EXPECT_EQ(narrow.grad().to_vector(), (Values{4, 5, 6}));
    EXPECT_EQ(wide.grad().to_vector(), (Values{1, 2, 3}));
    co_return;
  });
}

}  // namespace
}  // namespace coshard
