#pragma once
// Many elements to one. See kernels/args.h.
#include "kernels/args/view.h"

namespace coshard::kernels {

enum class ReduceOp : std::uint8_t { Sum, Mean, Max, Min };
// x [outer, extent, inner] -> y [outer, inner]. Extent 0: sum 0, mean NaN, max -inf, min +inf.
// Ints: sum, max, min.
struct ReduceDim {
  ReduceOp op;
  DType dtype;
  std::int64_t outer, extent, inner;
  const void* x;
  void* y;
};

// returns the sum of |x|^p (p = 2), in double, over contiguous data; p = 0 means the largest |x|
struct PowSum {
  DType dtype;
  std::int64_t count;
  const void* x;
  double p;
  double* result;
};

}  // namespace coshard::kernels
