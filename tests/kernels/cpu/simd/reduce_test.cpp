#include <limits>
#include <range/v3/view/cartesian_product.hpp>

#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {
using namespace testing;

constexpr ReduceOp kOps[] = {ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Min};

TEST(ReduceDim, MatchesTheReference) {
  const std::int64_t shapes[][3] = {{1, 1, 1},   {3, 17, 1}, {5, 1000, 1}, {2, 9, 133},
                                    {1, 257, 3}, {0, 4, 4},  {2, 0, 3}};
  for (const auto& [op, dtype, s] : ranges::views::cartesian_product(kOps, kFloating, shapes)) {
    const Data x = Data::normal(dtype, s[0] * s[1] * s[2], 1);
    Data y(dtype, s[0] * s[2]);
    Data want = y;
    cpu::run(ReduceDim{op, dtype, s[0], s[1], s[2], x.ptr(), y.ptr()});
    reference::run(ReduceDim{op, dtype, s[0], s[1], s[2], x.ptr(), want.ptr()});
    expect_close(y, want, tolerance(dtype) * 5, "reduce " + std::to_string(int(op)));
  }
}

TEST(ReduceDim, OfNothingIsTheNeutralElement) {
  const double inf = std::numeric_limits<double>::infinity();
  for (DType dtype : kFloating) {
    Data y(dtype, 1);
    const auto of = [&](ReduceOp op) {
      cpu::run(ReduceDim{op, dtype, 1, 0, 1, y.ptr(), y.ptr()});
      return y.get(0);
    };
    EXPECT_EQ(of(ReduceOp::Sum), 0);
    EXPECT_TRUE(std::isnan(of(ReduceOp::Mean)));
    EXPECT_EQ(of(ReduceOp::Max), -inf);
    EXPECT_EQ(of(ReduceOp::Min), inf);
  }
}

TEST(ReduceDim, CarriesNaNOnFromAnywhere) {
  for (std::int64_t at = 0; at < 70; ++at) {
    Data x = Data::normal(DType::F32, 70, 1);
    x.set(at, std::nan(""));
    for (ReduceOp op : kOps) {
      Data y(DType::F32, 1);
      cpu::run(ReduceDim{op, DType::F32, 1, 70, 1, x.ptr(), y.ptr()});
      ASSERT_TRUE(std::isnan(y.get(0))) << at << " " << int(op);
    }
  }
}

TEST(ReduceDim, KeepsIntegersExact) {
  for (DType dtype : {DType::I64, DType::I32}) {
    const Data x = Data::integers(dtype, 60, 1, -50, 50);
    Data y(dtype, 1);
    cpu::run(ReduceDim{ReduceOp::Sum, dtype, 1, 60, 1, x.ptr(), y.ptr()});
    double sum = 0;
    for (int i = 0; i < 60; ++i) sum += x.get(i);
    EXPECT_EQ(y.get(0), sum);
    EXPECT_ANY_THROW(cpu::run(ReduceDim{ReduceOp::Mean, dtype, 1, 60, 1, x.ptr(), y.ptr()}));
  }
}

TEST(PowSum, MatchesTheReference) {
  for (DType dtype : kFloating) {
    for (double p : {0.0, 1.0, 2.0, 3.0}) {
      for (std::int64_t count : {0, 1, 17, 257, 100001}) {
        const Data x = Data::normal(dtype, count, 1);
        double got = -1;
        double want = -2;
        cpu::run(PowSum{dtype, count, x.ptr(), p, &got});
        reference::run(PowSum{dtype, count, x.ptr(), p, &want});
        EXPECT_NEAR(got, want, 1e-11 * (1 + want));
      }
    }
  }
}

TEST(PowSum, CarriesNaNOn) {
  Data x = Data::normal(DType::F32, 100, 1);
  x.set(40, std::nan(""));
  for (double p : {0.0, 2.0}) {
    double got = 0;
    cpu::run(PowSum{DType::F32, 100, x.ptr(), p, &got});
    EXPECT_TRUE(std::isnan(got));
  }
}

}  // namespace
}  // namespace coshard::kernels
