#include <functional>

#include "kernels/reference/reference.h"
#include "tests/kernels/reference/slopes.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels::reference {
namespace {

using namespace testing;

TEST(Gradients, OfUnaryFunctionsAreTheirSlopes) {
  for (const UnaryOp op : every_unary_op()) {
    const bool positive = op == UnaryOp::Sqrt || op == UnaryOp::Rsqrt || op == UnaryOp::Log ||
                          op == UnaryOp::Log1p || op == UnaryOp::PowScalar ||
                          op == UnaryOp::Reciprocal;
    Data x = Data::normal(kF64, 20, 1, 2);
    if (positive)
      for (int i = 0; i < 20; ++i) x.set(i, 0.5 + std::abs(x.get(i)));
    const Data dy = Data::normal(kF64, 20, 2);
    Data y(kF64, 20);
    Data dx(kF64, 20);
    const auto forward = [&] { run(Unary{op, kF64, 20, x.ptr(), y.ptr(), 0.3, 1.1}); };
    forward();
    const void* from = is_from_result(op) ? y.ptr() : x.ptr();
    run(UnaryGrad{op, kF64, 20, dy.ptr(), from, dx.ptr(), 0.3, 1.1});
    expect_gradient(x, dx, dy, y, forward, std::string(to_string(op)));
  }
}

TEST(Gradients, OfSwiGluAreItsSlopes) {
  Data a = Data::normal(kF64, 20, 1, 2);
  Data b = Data::normal(kF64, 20, 2);
  const Data dy = Data::normal(kF64, 20, 3);
  Data y(kF64, 20);
  Data da(kF64, 20);
  Data db(kF64, 20);
  run(SwiGluGrad{kF64, 20, dy.ptr(), a.ptr(), b.ptr(), da.ptr(), db.ptr()});
  const auto forward = [&] { run(SwiGlu{kF64, 20, a.ptr(), b.ptr(), y.ptr()}); };
  expect_gradient(a, da, dy, y, forward, "a");
  expect_gradient(b, db, dy, y, forward, "b");
}

}  // namespace
}  // namespace coshard::kernels::reference
