#pragma once
// What forward bodies share: local tensors seen as kernel arguments, and the geometry of views.
// Used on the rank's thread, on local tensors only.
#include <optional>

#include <coshard/dtensor/ops/op.h>
#include "kernels/run.h"

namespace coshard {

// This rank's part as a kernel argument; waits for data in flight.
kernels::View view_of(const Tensor& tensor);
// The same memory with another geometry.
kernels::View view_of(const Tensor& tensor, const Shape& shape, const Strides& strides);
// Stretched (stride 0) to `shape`, right-aligned.
kernels::View broadcast_view(const Tensor& tensor, const Shape& shape);

// The tensor itself, or a row-major copy of it.
Tensor local_contiguous(const Tensor& tensor);
// Strides with which memory of `from` and `strides` reads as `to` (as many elements), if any
// (torch.Tensor.view).
std::optional<Strides> view_strides(const Shape& from, const Strides& strides, const Shape& to);
// The local part with another shape: a view where strides allow it, otherwise a copy.
Tensor local_reshape(const Tensor& tensor, const Shape& shape);

// Row-major [rows, the last `count` dimensions].
Tensor matrix_rows(const Tensor& tensor, int count = 1);

inline void* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data() : nullptr;
}

// A row-major tensor as [outer, extent, inner], the extent being `count` dimensions from `first`
// on.
struct Lines {
  std::int64_t outer = 1, extent = 1, inner = 1;
};
Lines lines_of(const Shape& shape, int first, int count = 1);

// What statistics of a dtype are kept as: f64 for f64, f32 otherwise.
inline DType statistic_dtype(DType dtype) { return dtype == DType::F64 ? dtype : DType::F32; }

template <class Kernel>
void launch(const OpContext& c, const Kernel& kernel) {
  kernels::run(c.device(), kernel);
}

}  // namespace coshard
