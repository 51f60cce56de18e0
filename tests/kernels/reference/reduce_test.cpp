// Reductions over lines: what they give for NaN, for equals and for nothing, and their gradients.
#include <limits>

#include "kernels/reference/reference.h"
#include "tests/kernels/reference/reduce_lines.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {

using namespace testing;

using Slopes = std::vector<double>;

const double kReduceNan = std::numeric_limits<double>::quiet_NaN();

// One line reduced to one number.
double reduced(ReduceOp op, const std::vector<double>& values, double alpha = 0,
               DType dtype = DType::F64) {
  const Data x = reduce_line_of(values, dtype);
  Data y(dtype, 1);
  reference::run(ReduceDim{op, dtype, 1, x.count(), 1, x.ptr(), y.ptr(), alpha});
  return y.get(0);
}

TEST(Reductions, GiveTheValuesOfTheirDefinitions) {
  const std::vector<double> x = {3, -4, 0, 1};
  EXPECT_EQ(reduced(ReduceOp::Product, {3, -4, 2}), -24);
  EXPECT_EQ(reduced(ReduceOp::AbsMax, x), 4);
  EXPECT_EQ(reduced(ReduceOp::AbsMin, x), 0);
  EXPECT_EQ(reduced(ReduceOp::AbsPower, x, 0), 3);
  EXPECT_EQ(reduced(ReduceOp::AbsPower, x, 1), 8);
  EXPECT_EQ(reduced(ReduceOp::AbsPower, x, 2), 26);
  EXPECT_EQ(reduced(ReduceOp::AbsPower, {4, 9}, 0.5), 5);
  EXPECT_EQ(reduced(ReduceOp::Variance, x, 0), 6.5);
  EXPECT_NEAR(reduced(ReduceOp::Variance, x, 1), 26.0 / 3, 1e-14);
  EXPECT_NEAR(reduced(ReduceOp::Deviation, x, 1), std::sqrt(26.0 / 3), 1e-14);
  EXPECT_NEAR(reduced(ReduceOp::LogSumExp, {1000, 1000}), 1000 + std::log(2), 1e-12);
}

TEST(Reductions, TakeNaNAsTheirDefinitionsSay) {
  EXPECT_EQ(reduced(ReduceOp::NanSum, {1, kReduceNan, 2}), 3);
  EXPECT_TRUE(std::isnan(reduced(ReduceOp::AbsMax, {1, kReduceNan, 2})));
  EXPECT_TRUE(std::isnan(reduced(ReduceOp::Product, {1, kReduceNan, 0})));
  EXPECT_EQ(reduce_slopes(ReduceOp::NanSum, {1, kReduceNan, 2}, 5), (Slopes{5, 0, 5}));
}

TEST(Reductions, OfNothingAreNeutral) {
  EXPECT_EQ(reduced(ReduceOp::Product, {}), 1);
  EXPECT_EQ(reduced(ReduceOp::NanSum, {}), 0);
  EXPECT_EQ(reduced(ReduceOp::AbsPower, {}, 3), 0);
  EXPECT_EQ(reduced(ReduceOp::LogSumExp, {}), -kReduceInf);
  EXPECT_TRUE(std::isnan(reduced(ReduceOp::Variance, {}, 1)));
  EXPECT_EQ(reduced(ReduceOp::Max, {}, 0, DType::I32), std::numeric_limits<std::int32_t>::lowest());
  EXPECT_EQ(reduced(ReduceOp::Min, {}, 0, DType::Bool), 1);
  EXPECT_EQ(reduced(ReduceOp::Max, {}, 0, DType::Bool), 0);
}

TEST(Reductions, OfBooleansAreAnyAndAll) {
  EXPECT_EQ(reduced(ReduceOp::Max, {0, 1, 0}, 0, DType::Bool), 1);
  EXPECT_EQ(reduced(ReduceOp::Min, {1, 1, 0}, 0, DType::Bool), 0);
  EXPECT_ANY_THROW(reduced(ReduceOp::Sum, {1, 1}, 0, DType::Bool));
}

TEST(Reductions, RunThroughTheMiddleOfThreeDimensions) {
  const Data x = reduce_line_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});  // [2, 3, 2]
  Data y(DType::F64, 4);
  reference::run(ReduceDim{ReduceOp::Product, DType::F64, 2, 3, 2, x.ptr(), y.ptr()});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(y.get(i), (Slopes{15, 48, 693, 960})[i]);
}

}  // namespace
}  // namespace coshard::kernels
