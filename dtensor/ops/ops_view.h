#pragma once
// Views and rearrangements: reshape, permute, expand, slice, cat, split.
// Conventions: dtensor/ops/ops.h.
#include <span>
#include <vector>

#include "dtensor/tensor.h"

namespace coshard {

// One size may be -1. A view where strides allow it, otherwise a copy. A shard moves with its dim;
// a cut that the new shape cannot express is gathered first.
Tensor view(const Tensor& x, const Shape& shape);
Tensor transpose(const Tensor& x, int dim0, int dim1);
Tensor permute(const Tensor& x, const Shape& dims);
// [start, end) along dim; a cut dim is gathered first. Negative indices count from the end.
Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t end);
Tensor cat(std::span<const Tensor> parts, int dim);
inline Tensor cat(const std::vector<Tensor>& parts, int dim) {
  return cat(std::span<const Tensor>(parts), dim);
}
// Pieces of `size` along dim, the last one smaller (torch.split).
std::vector<Tensor> split(const Tensor& x, std::int64_t size, int dim);
Tensor expand(const Tensor& x, const Shape& shape);
Tensor contiguous(const Tensor& x);

}  // namespace coshard
