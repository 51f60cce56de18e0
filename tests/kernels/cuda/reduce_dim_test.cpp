// Reductions along a dimension.
#include <coshard/runtime/error.h>
#include "tests/kernels/cuda/compared.h"
#include "tests/kernels/cuda/reductions.h"

namespace coshard::kernels {
namespace {

using namespace testing;

void expect_reduced(const Reduction& r, const Data& x, const LinesShape& s) {
  const Data y(x.dtype(), s.lines());
  const auto make = [&](auto at) {
    return ReduceDim{r.op, x.dtype(), s.outer, s.extent, s.inner, at(x), at(y), r.alpha};
  };
  expect_as_reference(r.text() + s.text(), {&y}, make, 5);
}

TEST(CudaReduceDim, MatchesTheReferenceOnLinesOfEveryLength) {
  for (const Reduction& r : kReductions) {
    for (const DType dtype : kFloating) {
      for (const LinesShape& s : kLineShapes)
        expect_reduced(r, Data::normal(dtype, s.count(), 1), s);
    }
  }
}

TEST(CudaReduceDim, CutsLongLinesIntoChunks) {
  for (const Reduction& r : kReductions) {
    for (const LinesShape& s : {LinesShape{1, 40001, 1}, {2, 20000, 1}, {1, 1700, 3}})
      expect_reduced(r, Data::normal(DType::F32, s.count(), 1, r.op == ReduceOp::Product ? 0.9 : 1),
                     s);
  }
}

TEST(CudaReduceDim, TreatsNaNAndInfinitiesAsTheReference) {
  for (const Reduction& r : kReductions) {
    for (const LinesShape& s : {LinesShape{9, 40, 1}, {1, 40, 9}, {8, 700, 1}, {1, 17000, 1}}) {
      Data x = Data::normal(DType::F32, s.count(), 1);
      spoil(x, s.extent + 1);
      expect_reduced(r, x, s);
    }
    for (const double value :
         {-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()})
      expect_reduced(r, Data::filled(DType::F32, 17000, value), {1, 17000, 1});
  }
  // nothing but -infinity in the first chunk
  Data x = Data::normal(DType::F32, 17000, 1);
  for (std::int64_t i = 0; i < 9000; ++i) x.set(i, -std::numeric_limits<double>::infinity());
  expect_reduced({ReduceOp::LogSumExp}, x, {1, 17000, 1});
}

TEST(CudaReduceDim, KeepsIntegersExact) {
  std::vector<LinesShape> shapes = kLineShapes;
  shapes.insert(shapes.end(), {{1, 40001, 1}, {2, 1700, 3}});  // cut into chunks
  for (const DType dtype : {DType::I64, DType::I32, DType::Bool}) {
    for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Product, ReduceOp::Max, ReduceOp::Min}) {
      const bool sums = op == ReduceOp::Sum || op == ReduceOp::Product;
      for (const LinesShape& s : shapes) {
        const Data x = Data::integers(dtype, s.count(), 1, dtype == DType::Bool ? 0 : -3, 5);
        const Data y(dtype, s.lines());
        const auto make = [&](auto at) {
          return ReduceDim{op, dtype, s.outer, s.extent, s.inner, at(x), at(y)};
        };
        if (sums && dtype == DType::Bool) {
          EXPECT_THROW(OnDevice().run(make([](const Data&) { return nullptr; })), Error);
        } else {
          expect_as_reference("integers" + s.text(), {&y}, make, 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace coshard::kernels
