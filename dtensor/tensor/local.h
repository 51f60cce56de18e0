#pragma once
// Local tensors: as kernel arguments, as views of memory, and what their bits are. Rank's thread.
#include <optional>

#include <coshard/dtensor/tensor/tensor.h>
#include "kernels/run.h"

namespace coshard {

// The local tensor as a kernel argument; waits for data in flight.
kernels::View view_of(const Tensor& tensor);
// The same memory with another geometry.
kernels::View view_of(const Tensor& tensor, const Shape& shape, const Strides& strides);
// From its element `begin` on.
kernels::View view_of(const Tensor& tensor, const Shape& shape, const Strides& strides,
                      std::int64_t begin);
// Broadcast (stride 0) to `shape`, right-aligned.
kernels::View broadcast_view(const Tensor& tensor, const Shape& shape);

// Whether both have the same elements of memory at the same positions.
bool is_same_view(const Tensor& a, const Tensor& b);
// Whether the ranges of memory from the first to the last element of each have bytes in common.
bool memory_overlaps(const Tensor& a, const Tensor& b);
// Whether an element of the one is an element of the other: of two columns, none is, though their
// ranges overlap. Exact where both have the same strides, each of which steps over all inner
// dimensions; else as memory_overlaps.
bool share_elements(const Tensor& a, const Tensor& b);

// New memory, all of one value.
Tensor filled(const std::shared_ptr<Device>& device, const Shape& shape, double value, DType dtype);
// The tensor itself, or a row-major copy of it.
Tensor local_contiguous(const Tensor& tensor);
// Strides under which memory of shape `from` and these `strides` reads as `to` (of as many
// elements), if there are any (torch.Tensor.view).
std::optional<Strides> view_strides(const Shape& from, const Strides& strides, const Shape& to);
// Whether x lies row-major in memory; of a DTensor also on one device (Tensor::logical).
bool is_row_major(const Tensor& x);
// Makes these x's strides on one device.
void set_logical(const DTensor& x, const Strides& strides);
// Whether x's strides on one device are unknown: from_local of uneven parts was not told them. Then
// all ranks copy what those may make a copy, and refuse to go on where it matters whether it is
// one.
inline bool has_unknown_strides(const DTensor& x) { return x.logical() && x.logical()->empty(); }
// Whether strides forbid to view x as `to` on one device. Equal on all ranks; false where they are
// unknown.
bool strides_forbid(const DTensor& x, const Shape& to);
// Whether a view of shape `from` as `to` merges dimensions, so that it depends on strides.
bool merges_dimensions(const Shape& from, const Shape& to);
// The local tensor with another shape: a view if strides allow it, otherwise a copy.
Tensor local_reshape(const Tensor& tensor, const Shape& shape);

// Row-major [rows, the last `count` dimensions].
Tensor matrix_rows(const Tensor& tensor, int count = 1);

// `elements` rounded up to 64 bytes, so that what follows is aligned for every kernel.
inline std::int64_t aligned(std::int64_t elements, DType dtype) {
  const auto step = static_cast<std::int64_t>(64 / size_of(dtype));
  return (elements + step - 1) / step * step;
}

// A hash of the bits of the local tensor's elements; copies them to the host. 0 on a device that
// computes nothing (simulate).
std::uint64_t bits_hash(const Tensor& x);
std::uint64_t hash_of_zeros(const Tensor& like);  // if all its bits were 0

// What a kernel reads; null for an undefined tensor.
inline const void* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.const_data() : nullptr;
}

// A row-major tensor as [outer, extent, inner], where extent covers `count` dimensions starting at
// `first`.
struct Lines {
  std::int64_t outer = 1, extent = 1, inner = 1;
};
Lines lines_of(const Shape& shape, int first, int count = 1);

// The dtype in which statistics are kept: f64 for f64, otherwise f32.
inline DType statistic_dtype(DType dtype) { return dtype == DType::F64 ? dtype : DType::F32; }

}  // namespace coshard
