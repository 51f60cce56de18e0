#include <coshard/runtime/error.h>
#include "tests/kernels/cuda/compared.h"

namespace coshard::kernels {
namespace {
using namespace testing;

// An op and its alphas.
struct Reduction {
  ReduceOp op;
  double alpha = 0;
  std::string text() const { return "reduction " + std::to_string(static_cast<int>(op)); }
};
const std::vector<Reduction> kReductions = {
    {ReduceOp::Sum},         {ReduceOp::Mean},        {ReduceOp::Max},
    {ReduceOp::Min},         {ReduceOp::Product},     {ReduceOp::NanSum},
    {ReduceOp::AbsMax},      {ReduceOp::AbsMin},      {ReduceOp::AbsPower, 0},
    {ReduceOp::AbsPower, 1}, {ReduceOp::AbsPower, 2}, {ReduceOp::AbsPower, 2.5},
    {ReduceOp::Variance, 1}, {ReduceOp::Deviation},   {ReduceOp::LogSumExp}};

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

TEST(CudaArgReduce, FindsTheFirstExtremeAndTheFirstNaN) {
  for (const DType dtype : kLineDTypes) {
    for (const LinesShape& s : kLineShapes) {
      if (s.extent == 0) continue;
      Data x = Data::integers(dtype, s.count(), 1, dtype == DType::Bool ? 0 : -9, 9);
      if (is_floating(dtype)) spoil(x, 2 * s.extent + 1);
      const Data values(dtype, s.lines()), places(DType::I64, s.lines());
      for (const bool largest : {false, true}) {
        const auto make = [&](auto at) {
          return ArgReduce{largest, dtype, s.outer,    s.extent,
                           s.inner, at(x), at(values), at(places)};
        };
        expect_as_reference("place" + s.text(), {&values, &places}, make);
        expect_as_reference("place" + s.text(), {&places}, make, 0);
      }
    }
  }
}

}  // namespace
}  // namespace coshard::kernels
