#pragma once
// Turns equal-shaped strided views into the fewest nested loops, the innermost along the first
// view's smallest stride. Only included by the sources of this directory.
#include "kernels/cpu/simd/parallel.h"
#include "kernels/cpu/simd/vec.h"

namespace coshard::kernels::cpu::COSHARD_ISA {

template <int N>
struct Loops {
  int ndim = 0;
  std::int64_t shape[kMaxDims] = {};
  std::int64_t strides[N][kMaxDims] = {};

  std::int64_t inner() const { return shape[ndim - 1]; }
  std::int64_t stride(int view) const { return strides[view][ndim - 1]; }
  std::int64_t rows() const {
    std::int64_t count = 1;
    for (int d = 0; d + 1 < ndim; ++d) count *= shape[d];
    return count;
  }
  void swap(int d, int e) {
    std::int64_t* lists[N + 1] = {shape};
    for (int v = 0; v < N; ++v) lists[v + 1] = strides[v];
    for (auto* list : lists) {
      const std::int64_t kept = list[d];
      list[d] = list[e];
      list[e] = kept;
    }
  }
};

template <int N>
inline bool merges(const Loops<N>& loops, int outer) {
  for (int v = 0; v < N; ++v) {
    const std::int64_t* s = loops.strides[v];
    if (s[outer] != s[outer + 1] * loops.shape[outer + 1]) return false;
  }
  return true;
}

// An empty shape gives one row of 0 elements.
template <int N>
inline Loops<N> loops_over(const View* const (&views)[N]) {
  Loops<N> loops;
  for (int d = 0; d < views[0]->ndim; ++d) {
    const std::int64_t extent = views[0]->shape[d];
    if (extent == 0) {
      Loops<N> none;
      none.ndim = 1;
      return none;
    }
    if (extent == 1) continue;
    loops.shape[loops.ndim] = extent;
    for (int v = 0; v < N; ++v) loops.strides[v][loops.ndim] = views[v]->strides[d];
    for (int e = loops.ndim++; e > 0 && loops.strides[0][e] > loops.strides[0][e - 1]; --e) {
      loops.swap(e, e - 1);
    }
  }
  if (loops.ndim == 0) {
    loops.ndim = 1;
    loops.shape[0] = 1;
    for (int v = 0; v < N; ++v) loops.strides[v][0] = 1;
  }
  for (int d = loops.ndim - 2; d >= 0; --d) {
    if (!merges(loops, d)) continue;
    loops.shape[d] *= loops.shape[d + 1];
    for (int v = 0; v < N; ++v) loops.strides[v][d] = loops.strides[v][d + 1];
    for (int e = d + 1; e + 1 < loops.ndim; ++e) loops.swap(e, e + 1);
    --loops.ndim;
  }
  return loops;
}

// Calls f(offsets[N], count) for every innermost row, or for pieces of the row if there is only
// one.
template <int N, class F>
inline void each_row(const Loops<N>& loops, const F& f) {
  if (loops.ndim == 1) {
    return parallel(loops.inner(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      std::int64_t offsets[N];
      for (int v = 0; v < N; ++v) offsets[v] = begin * loops.strides[v][0];
      f(offsets, end - begin);
    });
  }
  parallel(loops.rows(), row_grain(loops.inner()), [&](std::int64_t begin, std::int64_t end) {
    std::int64_t index[kMaxDims] = {};
    std::int64_t offsets[N] = {};
    std::int64_t rest = begin;
    for (int d = loops.ndim - 2; d >= 0; --d) {
      index[d] = rest % loops.shape[d];
      rest /= loops.shape[d];
      for (int v = 0; v < N; ++v) offsets[v] += index[d] * loops.strides[v][d];
    }
    for (std::int64_t row = begin; row < end; ++row) {
      f(offsets, loops.inner());
      for (int d = loops.ndim - 2; d >= 0; --d) {
        for (int v = 0; v < N; ++v) offsets[v] += loops.strides[v][d];
        if (++index[d] < loops.shape[d]) break;
        for (int v = 0; v < N; ++v) offsets[v] -= loops.strides[v][d] * loops.shape[d];
        index[d] = 0;
      }
    }
  });
}

// A register of elements that are `stride` apart.
template <class T, class Lanes>
COSHARD_INLINE Vec load_strided(const Lanes& lanes, const T* from, std::int64_t stride,
                                std::int64_t count) {
  if (stride == 1) return lanes.load(from);
  if (stride == 0) return all(static_cast<Real>(*from));
  T gathered[kLanes] = {};
  for (std::int64_t l = 0; l < count; ++l) gathered[l] = from[l * stride];
  return load(gathered);
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
