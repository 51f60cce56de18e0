// Gradients of reductions.
#include <coshard/runtime/error.h>
#include "tests/kernels/cuda/compared.h"
#include "tests/kernels/cuda/reductions.h"

namespace coshard::kernels {
namespace {

using namespace testing;

void expect_slopes(const Reduction& r, const Data& x, const LinesShape& s) {
  const Data dy = Data::normal(x.dtype(), s.lines(), 2);
  const Data dx(x.dtype(), s.count());
  const auto make = [&](auto at) {
    return ReduceGrad{r.op, x.dtype(), s.outer, s.extent, s.inner, at(dy), at(x), at(dx), r.alpha};
  };
  expect_as_reference("gradient of " + r.text() + s.text(), {&dx}, make, 5);
}

TEST(CudaReduceGrad, MatchesTheReference) {
  for (const Reduction& r : kReductions) {
    if (r.op == ReduceOp::Sum || r.op == ReduceOp::Mean) continue;
    for (const DType dtype : kFloating) {
      for (const LinesShape& s : kLineShapes) {
        expect_slopes(r, Data::normal(dtype, s.count(), 1), s);
        if (s.extent > 100) continue;
        expect_slopes(r, Data::integers(dtype, s.count(), 1, -2, 2), s);  // ties and zeros
      }
    }
  }
}

TEST(CudaReduceGrad, CutsLongLinesIntoChunks) {
  for (const Reduction& r : kReductions) {
    if (r.op == ReduceOp::Sum || r.op == ReduceOp::Mean || r.op == ReduceOp::Product) continue;
    for (const DType dtype : {DType::F32, DType::BF16}) {
      for (const LinesShape& s : {LinesShape{1, 40001, 1}, {2, 20000, 1}, {1, 1700, 3}}) {
        expect_slopes(r, Data::normal(dtype, s.count(), 1), s);
        Data x = Data::integers(dtype, s.count(), 1, -20, 20);  // ties
        expect_slopes(r, x, s);
        spoil(x, s.extent * 2 / 3);
        expect_slopes(r, x, s);
      }
    }
  }
}

TEST(CudaReduceGrad, TreatsNaNAndInfinitiesAsTheReference) {
  for (const Reduction& r : kReductions) {
    if (r.op == ReduceOp::Sum || r.op == ReduceOp::Mean) continue;
    for (const LinesShape& s : {LinesShape{9, 40, 1}, {1, 40, 9}}) {
      Data x = Data::normal(DType::F64, s.count(), 1);
      spoil(x, s.extent + 1);
      expect_slopes(r, x, s);
    }
  }
}

}  // namespace
}  // namespace coshard::kernels
