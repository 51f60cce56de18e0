#pragma once
// Joint iteration over up to four views of one shape: dimensions that are dense in all of them are
// merged, and an element's index is mapped to its offset in each view. Used by the .cu files only.
#include <array>

#include "kernels/cuda/divider.h"
#include "kernels/cuda/typed.h"

namespace coshard::kernels::cuda {

template <int N>
struct StridedIndex {
  int ndim = 0;
  std::int64_t count = 1;
  std::int64_t shape[kMaxDims] = {};
  std::int64_t strides[N][kMaxDims] = {};
  Divider dividers[kMaxDims];
  bool dense = false;  // every view has stride 1: the offset is the index
  bool small = false;  // fewer than 2^31 elements

  // Call after changing shape and strides; unused dimensions are set to 1.
  void settle() {
    count = 1;
    for (int d = 0; d < ndim; ++d) count *= shape[d];
    small = count < (std::int64_t{1} << 31);
    for (int d = 0; small && count > 0 && d < ndim; ++d)
      dividers[d] = Divider(static_cast<std::uint32_t>(shape[d]));
    dense = ndim == 0 || ndim == 1;
    for (int v = 0; dense && ndim == 1 && v < N; ++v) dense = strides[v][0] == 1;
  }

  CS_HOST_BODY void offsets(std::int64_t element, std::int64_t (&out)[N]) const {
    if (dense) {
      for (int v = 0; v < N; ++v) out[v] = element;
      return;
    }
    for (int v = 0; v < N; ++v) out[v] = 0;
    for (int d = ndim - 1; d > 0; --d) {
      const std::int64_t above =
          small ? dividers[d].divide(static_cast<std::uint32_t>(element)) : element / shape[d];
      const std::int64_t here = element - above * shape[d];
      element = above;
      for (int v = 0; v < N; ++v) out[v] += here * strides[v][d];
    }
    for (int v = 0; v < N; ++v) out[v] += element * strides[v][0];
  }
};

// The first view determines the shape; a view without data has strides of 0.
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
  index.settle();
  return index;
}

}  // namespace coshard::kernels::cuda
