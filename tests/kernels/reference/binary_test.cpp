// Functions of two elements by the reference: definitions, scalars, types.
#include <gtest/gtest.h>

#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {

using namespace testing;

double applied(BinaryOp op, double a, double b, DType dtype = DType::F64, double alpha = 1) {
  Data x(dtype, 1), y(dtype, 1), out(is_comparison(op) ? DType::Bool : dtype, 1);
  x.set(0, a);
  y.set(0, b);
  reference::run(Binary{op, out.view({1}), x.view({1}), y.view({1}), alpha});
  return out.get(0);
}

TEST(ReferenceBinary, IsTheFunctionOfItsName) {
  EXPECT_EQ(applied(BinaryOp::Add, 2, 3, DType::F64, -2), -4);
  EXPECT_EQ(applied(BinaryOp::Mul, 2, 3), 6);
  EXPECT_EQ(applied(BinaryOp::Div, 3, 2), 1.5);
  EXPECT_EQ(applied(BinaryOp::Pow, 2, 10), 1024);
  EXPECT_EQ(applied(BinaryOp::Maximum, 2, 3), 3);
  EXPECT_EQ(applied(BinaryOp::Minimum, 2, 3), 2);
  EXPECT_EQ(applied(BinaryOp::Remainder, -7, 3), 2);
  EXPECT_EQ(applied(BinaryOp::Remainder, 7, -3, DType::I64), -2);
  EXPECT_TRUE(std::isnan(applied(BinaryOp::Maximum, NAN, 3)));
  EXPECT_TRUE(std::isnan(applied(BinaryOp::Minimum, 3, NAN)));
}

TEST(ReferenceBinary, ComparisonsGiveBoolAndOrderNothingWithNaN) {
  EXPECT_EQ(applied(BinaryOp::Lt, 1, 2), 1);
  EXPECT_EQ(applied(BinaryOp::Lt, 2, 2), 0);
  EXPECT_EQ(applied(BinaryOp::Le, 2, 2), 1);
  EXPECT_EQ(applied(BinaryOp::Eq, NAN, NAN), 0);
  EXPECT_EQ(applied(BinaryOp::Ne, NAN, NAN), 1);
}

TEST(ReferenceBinary, StretchesByStridesOfZero) {
  Data x(DType::F32, 2), y(DType::F32, 1), out(DType::F32, 2);
  x.set(0, 1);
  x.set(1, 2);
  y.set(0, 10);
  View once = y.view({2});
  once.strides[0] = 0;
  reference::run(Binary{BinaryOp::Add, out.view({2}), x.view({2}), once});
  EXPECT_EQ(out.get(0), 11);
  EXPECT_EQ(out.get(1), 12);
}

}  // namespace
}  // namespace coshard::kernels
