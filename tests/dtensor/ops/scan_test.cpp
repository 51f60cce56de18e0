// Scans along a dimension.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::refusal;
using testing::values;

TEST(Edges, ScansAndTransposesOfNoDimensionsTakeTheFirstAndTheLast) {
  alone([](World& world) {
    const Tensor x = full(world, {}, 3, DType::F64, true);
    for (const int dim : {0, -1}) {
      for (const Tensor& y : {cumsum(x, dim), cumprod(x, dim), logcumsumexp(x, dim),
                              cummax(x, dim).values, transpose(x, dim, 0)}) {
        EXPECT_EQ(y.shape(), Shape{});
        EXPECT_EQ(y.item(), 3);
      }
      EXPECT_EQ(cummin(x, dim).indices.item(), 0);
      EXPECT_EQ(refusal([&] { cumsum(x, dim + 2); }).find("cumsum: dimension"), 0U);
    }
    run_backward(cumprod(x, 0) * cummax(x, 0).values);
    EXPECT_EQ(x.grad().item(), 6);
  });
}

}  // namespace
}  // namespace coshard
