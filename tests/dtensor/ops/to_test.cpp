// to: casts, and the gradients of casts.
#include <gtest/gtest.h>

#include <coshard/dtensor/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;
using testing::Values;

TEST(To, CastsTheGradientBack) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = counting(world, {3}, DType::BF16);
    x.set_requires_grad(true);
    const Tensor y = to(x, DType::F32);
    EXPECT_EQ(y.dtype(), DType::F32);
    run_backward(sum(y * y));
    EXPECT_EQ(x.grad().dtype(), DType::BF16);
    EXPECT_EQ(x.grad().to_vector(), (Values{2, 4, 6}));
    EXPECT_FALSE(to(x, DType::I64).requires_grad());
    co_return;
  });
}

}  // namespace
}  // namespace coshard
