#pragma once
// Indexing along one dimension, and triangular masking. See kernels/args.h.
#include <limits>

#include "kernels/args/view.h"
#include "runtime/device/device_assert.h"

namespace coshard::kernels {

// out[.., i, ..] = x[.., index[.., i, ..], ..] along `dim`. Every dtype, one for out and x. index
// (I64 or I32) has out's shape; x has the same shape except in `dim`. Error{BadInput} for an index
// outside x.
struct Gather {
  View out, x, index;
  int dim;
};

// out[.., index[.., i, ..], ..] = src[.., i, ..] along `dim`, or += src; where src.data is null,
// every element of src is `value`. index (I64 or I32) has src's shape; out is at least as large in
// all dimensions except `dim`. For equal indices the last one wins, or all are added.
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

// Checks that every index (I64 or I32) is in [0, limit) or equals `ignore`. Otherwise
// Error{BadInput} with the text of `kind`: from the call on the CPU, from the host's next wait on
// other devices.
struct CheckIndex {
  DeviceAssertKind kind;
  DType dtype;
  std::int64_t count, limit;
  const void* index;
  std::int64_t ignore = std::numeric_limits<std::int64_t>::min();
};

// clang-format off
#define COSHARD_INDEX_KERNELS(X) \
  X(Gather) X(Scatter) X(Triangle) X(CheckIndex)
// clang-format on

}  // namespace coshard::kernels
