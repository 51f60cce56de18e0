#pragma once
// Lines of numbers for tests of reductions.
#include <limits>

#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels::testing {

inline const double kReduceInf = std::numeric_limits<double>::infinity();

inline Data reduce_line_of(const std::vector<double>& values, DType dtype = DType::F64) {
  Data data(dtype, static_cast<std::int64_t>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) data.set(static_cast<std::int64_t>(i), values[i]);
  return data;
}

inline std::vector<double> reduce_slopes(ReduceOp op, const std::vector<double>& values, double dy,
                                         double alpha = 0) {
  const Data x = reduce_line_of(values);
  const Data seed = reduce_line_of({dy});
  Data dx(DType::F64, x.count());
  reference::run(ReduceGrad{op, DType::F64, 1, x.count(), 1, seed.ptr(), x.ptr(), dx.ptr(), alpha});
  std::vector<double> slopes;
  for (std::int64_t i = 0; i < dx.count(); ++i) slopes.push_back(dx.get(i));
  return slopes;
}

}  // namespace coshard::kernels::testing
