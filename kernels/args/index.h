#pragma once
// Selection by index along one dimension, and by triangle. See kernels/args.h.
#include <limits>

#include "kernels/args/view.h"
#include "runtime/device/device_assert.h"

namespace coshard::kernels {

// out[.., i, ..] = x[.., index[.., i, ..], ..] along `dim`. Every dtype, one for out and x. index
// (I64 or I32) has out's shape; x has it too but for `dim`. Error{BadInput} for an index outside x.
struct Gather {
  View out, x, index;
  int dim;
};

// out[.., index[.., i, ..], ..] = src[.., i, ..] along `dim`, or += src; where src.data is null,
// `value` stands for every element of it. index (I64 or I32) has src's shape; out has at least that
// in all dimensions but `dim`. Of equal indices the last one is kept, or all are added.
// Error{BadInput} for an index outside out.
struct Scatter {
  View out, src, index;
  int dim;
  bool add;
  double value = 0;
};

// y[.., i, j] = x[.., i, j] where j - i <= diagonal (upper: >= diagonal), 0 elsewhere. Equal shapes
// of at least 2 dimensions, every dtype.
struct Triangle {
  View y, x;
  std::int64_t diagonal;
  bool upper;
};

// Every index (I64 or I32) is in [0, limit), or is `ignore`. Error{BadInput} otherwise, as `kind`
// puts it: on the cpu from the call, elsewhere from the host's next wait.
struct CheckIndex {
  DeviceAssertKind kind;
  DType dtype;
  std::int64_t count, limit;
  const void* index;
  std::int64_t ignore = std::numeric_limits<std::int64_t>::min();
};

}  // namespace coshard::kernels
