// Gradients of reductions.
#include "kernels/reference/reference.h"
#include "tests/kernels/reference/reduce_lines.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {

using namespace testing;

using Slopes = std::vector<double>;

TEST(ReduceGradients, AreSharedEvenlyAmongEqualExtremes) {
  EXPECT_EQ(reduce_slopes(ReduceOp::Max, {2, 7, 7, 1}, 3), (Slopes{0, 1.5, 1.5, 0}));
  EXPECT_EQ(reduce_slopes(ReduceOp::Min, {2, 7, 1, 1}, 3), (Slopes{0, 0, 1.5, 1.5}));
  EXPECT_EQ(reduce_slopes(ReduceOp::AbsMax, {-7, 7, 1}, 3), (Slopes{-1.5, 1.5, 0}));
}

TEST(ReduceGradients, OfAProductAreRightWithZeros) {
  EXPECT_EQ(reduce_slopes(ReduceOp::Product, {2, 3, 4}, 1), (Slopes{12, 8, 6}));
  EXPECT_EQ(reduce_slopes(ReduceOp::Product, {2, 0, 4}, 1), (Slopes{0, 8, 0}));
  EXPECT_EQ(reduce_slopes(ReduceOp::Product, {0, 0, 4}, 1), (Slopes{0, 0, 0}));
}

TEST(ReduceGradients, AreZeroWhereTheNormOrTheDeviationIs) {
  EXPECT_EQ(reduce_slopes(ReduceOp::AbsPower, {0, -2, 2}, 3, 1), (Slopes{0, -3, 3}));
  EXPECT_EQ(reduce_slopes(ReduceOp::AbsPower, {0, 4}, kReduceInf, 0.5)[0], 0);
  EXPECT_EQ(reduce_slopes(ReduceOp::Deviation, {2, 2, 2}, 1, 1), (Slopes{0, 0, 0}));
  EXPECT_EQ(reduce_slopes(ReduceOp::Variance, {1, 3}, 1, 1), (Slopes{-2, 2}));
}

}  // namespace
}  // namespace coshard::kernels
