#include <limits>
#include <range/v3/view/cartesian_product.hpp>

#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {
using namespace testing;

void compare(UnaryOp op, const Data& x, double alpha, double t) {
  Data got(x.dtype(), x.count());
  Data want = got;
  Unary args{op, x.dtype(), x.count(), x.ptr(), got.ptr(), alpha, alpha + 0.5};
  cpu::run(args);
  args.y = want.ptr();
  reference::run(args);
  expect_close(got, want, t, std::string(to_string(op)));
}

TEST(Unary, MatchesTheReference) {
  for (const UnaryOp op : every_unary_op())
    for (DType dtype : kFloating)
      for (std::int64_t count : kCounts)
        for (const double alpha : {2, 3})
          compare(op, Data::normal(dtype, count, 1, 3), alpha, tolerance(dtype));
}

TEST(Unary, IsAccurateOverTheWholeRangeOfF32) {
  Data x(DType::F32, 40001);
  for (std::int64_t i = 0; i < x.count(); ++i) x.set(i, (double(i) - 20000) / 200);
  for (UnaryOp op : {UnaryOp::Tanh, UnaryOp::Sigmoid, UnaryOp::Silu, UnaryOp::Gelu}) {
    compare(op, x, 0, 6e-7);
  }
  Data relative(DType::F32, x.count());
  cpu::run(Unary{UnaryOp::Exp, DType::F32, x.count(), x.ptr(), relative.ptr(), 0});
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const double want = std::exp(x.get(i));
    if (want > 3.4e38 || want < 1.2e-38) continue;
    ASSERT_NEAR(relative.get(i) / want, 1, 2.5e-7) << x.get(i);
  }
  for (std::int64_t i = 0; i < x.count(); ++i) x.set(i, std::exp(double(i) / 300 - 66));
  compare(UnaryOp::Log, x, 0, 2e-7);
}

TEST(Unary, IsAccurateOverTheWholeRangeOfF64) {
  Data x(DType::F64, 40001);
  for (std::int64_t i = 0; i < x.count(); ++i) x.set(i, (double(i) - 20000) / 1000);
  for (UnaryOp op : {UnaryOp::Tanh, UnaryOp::Sigmoid, UnaryOp::Silu, UnaryOp::Gelu, UnaryOp::Erf}) {
    compare(op, x, 0, 5e-16);
  }
  for (std::int64_t i = 0; i < x.count(); ++i) x.set(i, (double(i) - 20000) / 27);
  Data relative(DType::F64, x.count());
  cpu::run(Unary{UnaryOp::Exp, DType::F64, x.count(), x.ptr(), relative.ptr(), 0});
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const double want = std::exp(x.get(i));
    if (std::isinf(want)) {
      ASSERT_EQ(relative.get(i), want) << x.get(i);
    } else if (want < 2.3e-308) {
      ASSERT_NEAR(relative.get(i), want, 1e-320) << x.get(i);
    } else {
      ASSERT_NEAR(relative.get(i) / want, 1, 5e-16) << x.get(i);
    }
  }
  for (std::int64_t i = 0; i < x.count(); ++i) x.set(i, std::exp(double(i) / 30 - 700));
  compare(UnaryOp::Log, x, 0, 3e-16);
}

TEST(Unary, KeepsInfinitiesZerosAndNaN) {
  const double inf = std::numeric_limits<double>::infinity();
  const double values[] = {inf, -inf, 0.0, -0.0, std::nan(""), 1e-40, -1e-40, 3e38, 200, -200};
  for (const DType dtype : {DType::F32, DType::F64, DType::F16}) {
    Data x(dtype, 10);
    for (int i = 0; i < 10; ++i) x.set(i, values[i]);
    for (UnaryOp op : {UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Exp, UnaryOp::Log, UnaryOp::Sqrt,
                       UnaryOp::Rsqrt, UnaryOp::Tanh, UnaryOp::Sigmoid, UnaryOp::Relu,
                       UnaryOp::Square, UnaryOp::Reciprocal, UnaryOp::Sign, UnaryOp::Erf,
                       UnaryOp::LeakyRelu, UnaryOp::Clamp, UnaryOp::Floor, UnaryOp::Softplus}) {
      compare(op, x, 0, tolerance(dtype));
    }
  }
}

TEST(Unary, ClampsToBoundsThatMayBeMissingCrossedOrNaN) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::nan("");
  struct Bounds {
    double low, high, of_minus_two, of_two;
  };
  for (DType dtype : kFloating) {
    for (const Bounds& b : {Bounds{-1, 1, -1, 1},
                            {-inf, 1, -2, 1},
                            {-1, inf, -1, 2},
                            {1, -1, -1, -1},
                            {nan, 1, nan, nan}}) {
      Data x(dtype, 3);
      Data want(dtype, 3);
      const double values[] = {-2, 2, nan};
      const double results[] = {b.of_minus_two, b.of_two, nan};
      for (int i = 0; i < 3; ++i) x.set(i, values[i]), want.set(i, results[i]);
      Data got(dtype, 3);
      cpu::run(Unary{UnaryOp::Clamp, dtype, 3, x.ptr(), got.ptr(), b.low, b.high});
      expect_close(got, want, "clamp");
    }
  }
}

TEST(Unary, GivesTheSameResultWhereverAnElementLies) {
  Data x = Data::normal(DType::F32, 64, 5);
  Data whole(DType::F32, 64);
  cpu::run(Unary{UnaryOp::Gelu, DType::F32, 64, x.ptr(), whole.ptr(), 0});
  for (std::int64_t first = 0; first < 40; ++first) {
    Data part(DType::F32, 7);
    cpu::run(
        Unary{UnaryOp::Gelu, DType::F32, 7, static_cast<float*>(x.ptr()) + first, part.ptr(), 0});
    for (std::int64_t i = 0; i < 7; ++i) ASSERT_EQ(part.get(i), whole.get(first + i));
  }
}

TEST(Unary, TakesIntegersWhereTheyMakeSense) {
  Data x = Data::integers(DType::I64, 9, 3, -5, 5);
  Data y(DType::I64, 9);
  cpu::run(Unary{UnaryOp::AddScalar, DType::I64, 9, x.ptr(), y.ptr(), 4});
  for (int i = 0; i < 9; ++i) EXPECT_EQ(y.get(i), x.get(i) + 4);
  cpu::run(Unary{UnaryOp::PowScalar, DType::I64, 9, x.ptr(), y.ptr(), 3});
  for (int i = 0; i < 9; ++i) EXPECT_EQ(y.get(i), x.get(i) * x.get(i) * x.get(i));
  const double inf = std::numeric_limits<double>::infinity();
  cpu::run(Unary{UnaryOp::Clamp, DType::I64, 9, x.ptr(), y.ptr(), -2, inf});
  for (int i = 0; i < 9; ++i) EXPECT_EQ(y.get(i), std::max(x.get(i), -2.0));
  EXPECT_ANY_THROW(cpu::run(Unary{UnaryOp::Exp, DType::I64, 9, x.ptr(), y.ptr(), 0}));
}

TEST(UnaryGrad, MatchesTheReference) {
  const auto ops = every_unary_op();
  for (const auto& [op, dtype, count] : ranges::views::cartesian_product(ops, kFloating, kCounts)) {
    const Data x = Data::normal(dtype, count, 1, 3);
    const Data dy = Data::normal(dtype, count, 2);
    Data got(dtype, count);
    Data want = got;
    UnaryGrad args{op, dtype, count, dy.ptr(), x.ptr(), got.ptr(), -1, 2};
    cpu::run(args);
    args.dx = want.ptr();
    reference::run(args);
    expect_close(got, want, "gradient of " + std::string(to_string(op)));
  }
}

TEST(UnaryGrad, OfAFunctionWithKinksPassesOrNotWhateverTheGradientIs) {
  const double inf = std::numeric_limits<double>::infinity();
  for (DType dtype : kFloating) {
    Data x(dtype, 4);
    const double values[] = {-1, 0, 1, std::nan("")};
    for (int i = 0; i < 4; ++i) x.set(i, values[i]);
    const Data dy = Data::filled(dtype, 4, inf);
    Data dx(dtype, 4);
    cpu::run(UnaryGrad{UnaryOp::Relu, dtype, 4, dy.ptr(), x.ptr(), dx.ptr()});
    for (int i = 0; i < 4; ++i) EXPECT_EQ(dx.get(i), i < 2 ? 0 : inf);
    cpu::run(UnaryGrad{UnaryOp::Clamp, dtype, 4, dy.ptr(), x.ptr(), dx.ptr(), -1, 1});
    for (int i = 0; i < 4; ++i) EXPECT_EQ(dx.get(i), i == 1 ? inf : 0);
  }
}

TEST(SwiGlu, AndItsGradientsMatchTheReference) {
  for (DType dtype : kFloating) {
    for (std::int64_t count : kCounts) {
      const Data a = Data::normal(dtype, count, 1, 3);
      const Data b = Data::normal(dtype, count, 2);
      const Data dy = Data::normal(dtype, count, 3);
      Data got[3] = {{dtype, count}, {dtype, count}, {dtype, count}};
      Data want[3] = {{dtype, count}, {dtype, count}, {dtype, count}};
      cpu::run(SwiGlu{dtype, count, a.ptr(), b.ptr(), got[0].ptr()});
      reference::run(SwiGlu{dtype, count, a.ptr(), b.ptr(), want[0].ptr()});
      cpu::run(SwiGluGrad{dtype, count, dy.ptr(), a.ptr(), b.ptr(), got[1].ptr(), got[2].ptr()});
      reference::run(
          SwiGluGrad{dtype, count, dy.ptr(), a.ptr(), b.ptr(), want[1].ptr(), want[2].ptr()});
      for (int i = 0; i < 3; ++i) expect_close(got[i], want[i], "swiglu " + std::to_string(i));
    }
  }
}

}  // namespace
}  // namespace coshard::kernels
