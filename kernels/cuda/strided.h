#pragma once
// Up to four views of one shape walked together: dimensions that are dense in all of them are
// merged, and the number of an element becomes its offset in each. Used by the .cu files only.
#include <array>

#include "kernels/cuda/typed.h"

namespace coshard::kernels::cuda {

template <int N>
struct StridedIndex {
  int ndim = 0;
  std::int64_t count = 1;
  std::int64_t shape[kMaxDims] = {};
  std::int64_t strides[N][kMaxDims] = {};
  bool dense = false;  // every view has stride 1 throughout: the offset is the number

  CS_HOST_BODY void offsets(std::int64_t element, std::int64_t (&out)[N]) const {
    if (dense) {
      for (int v = 0; v < N; ++v) out[v] = element;
      return;
    }
    for (int v = 0; v < N; ++v) out[v] = 0;
    for (int d = ndim - 1; d >= 0; --d) {
      const std::int64_t here = d == 0 ? element : element % shape[d];
      element /= shape[d];
      for (int v = 0; v < N; ++v) out[v] += here * strides[v][d];
    }
  }
};

// The shape is that of the first view; a view without data has strides of 0.
template <int N>
StridedIndex<N> strided_index(const std::array<const View*, N>& views) {
  StridedIndex<N> index;
  const View& first = *views[0];
  const auto stride = [&](int v, int d) {
    const View& view = *views[static_cast<std::size_t>(v)];
    return view.data == nullptr ? 0 : view.strides[static_cast<std::size_t>(d)];
  };
  for (int d = 0; d < first.ndim; ++d) {
    const std::int64_t size = first.shape[static_cast<std::size_t>(d)];
    index.count *= size;
    if (size == 1) continue;
    bool merges = index.ndim > 0;
    for (int v = 0; merges && v < N; ++v)
      merges = index.strides[v][index.ndim - 1] == stride(v, d) * size;
    if (merges) {
      index.shape[index.ndim - 1] *= size;
    } else {
      index.shape[index.ndim++] = size;
    }
    for (int v = 0; v < N; ++v) index.strides[v][index.ndim - 1] = stride(v, d);
  }
  index.dense = index.ndim == 0 || index.ndim == 1;
  for (int v = 0; index.dense && index.ndim == 1 && v < N; ++v)
    index.dense = index.strides[v][0] == 1;
  return index;
}

}  // namespace coshard::kernels::cuda
