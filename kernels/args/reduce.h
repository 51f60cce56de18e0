#pragma once
// Reductions of many elements to one. See kernels/args.h.
#include "kernels/args/view.h"

namespace coshard::kernels {

enum class ReduceOp : std::uint8_t {
  Sum,
  Mean,
  Max,
  Min,
  Product,
  NanSum,     // NaN counts as 0
  AbsMax,     // of |x|
  AbsMin,     // of |x|
  AbsPower,   // sum of |x|^alpha; alpha 0 counts nonzeros
  Variance,   // divisor max(0, extent - alpha)
  Deviation,  // square root of Variance
  LogSumExp,
};
// x [outer, extent, inner] -> y [outer, inner]. Extent 0: sums 0, product 1, mean and variance NaN,
// Max -inf, Min +inf, LogSumExp -inf, and for integers the lowest and highest value. Max, Min,
// AbsMax and AbsMin propagate NaN. Ints: Sum, Max, Min, Product. Bool: Max (any), Min (all).
struct ReduceDim {
  ReduceOp op;
  DType dtype;
  std::int64_t outer, extent, inner;
  const void* x;
  void* y;
  double alpha = 0;
};
// dx[o,e,i] = dy[o,i] * the derivative of op over x[o,:,i] by x[o,e,i]. Every op except Sum and
// Mean. Equal extremes share the gradient evenly. AbsPower: 0 at x = 0. Deviation: 0 where the
// deviation is 0.
struct ReduceGrad {
  ReduceOp op;
  DType dtype;
  std::int64_t outer, extent, inner;
  const void* dy;
  const void* x;
  void* dx;
  double alpha = 0;
};

// The largest (or smallest) element over the middle dimension of [outer, extent, inner] and its
// index, the first of equal ones; the first NaN wins. extent > 0. values may be null; indices I64.
// Any dtype.
struct ArgReduce {
  bool largest;
  DType dtype;
  std::int64_t outer, extent, inner;
  const void* x;
  void* values;
  void* indices;
};

enum class ScanOp : std::uint8_t { Sum, Product, LogSumExp, Max, Min };
// y[o,e,i] = op over x[o,0..e,i]; reverse: over x[o,e..,i]. Max and Min also return indices, I64,
// the last of equal ones; otherwise null. NaN propagates. Ints: all but LogSumExp.
struct Scan {
  ScanOp op;
  bool reverse;
  DType dtype;
  std::int64_t outer, extent, inner;
  const void* x;
  void* y;
  void* indices;
};
// The gradient of Scan in the forward direction: Product (also correct with zeros) and LogSumExp.
struct ScanGrad {
  ScanOp op;
  DType dtype;
  std::int64_t outer, extent, inner;
  const void* dy;
  const void* x;
  const void* y;
  void* dx;
};

// The first k elements of x [outer, extent, inner] sorted over the middle dimension: values and
// indices (I64), both [outer, k, inner]. Stable; NaN is greater than every number. Any dtype.
struct Sort {
  bool descending;
  DType dtype;
  std::int64_t outer, extent, inner, k;
  const void* x;
  void* values;
  void* indices;
};

// *result, one F64 in device memory: the sum of |x|^p over contiguous data; p = 0: the largest |x|.
struct PowSum {
  DType dtype;
  std::int64_t count;
  const void* x;
  double p;
  double* result;
};

// clang-format off
#define COSHARD_REDUCE_KERNELS(X) \
  X(ReduceDim) X(ReduceGrad) X(ArgReduce) X(Scan) X(ScanGrad) X(Sort) X(PowSum)
// clang-format on

}  // namespace coshard::kernels
