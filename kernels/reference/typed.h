#pragma once
// Elements of a View, and rounding. Used by the reference loops only.
#include <array>
#include <cstdint>
#include <type_traits>

#include "kernels/args.h"
#include "kernels/convert.h"
#include "kernels/integers.h"
#include "kernels/typed.h"

namespace coshard::kernels::reference {

// The type in which sums, means and statistics of T are stored.
template <class T>
using Statistic = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
double get(const T* data, std::int64_t at) {
  return static_cast<double>(data[at]);
}

// With a type of the dtype's size, for elements that are only moved.
template <class F>
void with_moved(DType dtype, F&& f) {
  is_float8(dtype) ? f(std::uint8_t{}) : with_any(dtype, f);
}

// `value` as an element of the dtype, of which T is the type for moving.
template <class T>
T element_of(DType dtype, double value) {
  if (!is_float8(dtype)) return converted<T>(value);
  T element{};
  store_float(dtype, &element, 0, static_cast<float>(value));
  return element;
}

// Rounds a double to T, via float for bf16 and f16.
template <class T>
T rounded(double value) {
  if constexpr (is_short_float<T>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// Calls f(std::array of N element offsets) for every index of `shape`, in row-major order.
template <std::size_t N, class F>
void walk(const View& shape, const std::array<const View*, N>& views, F&& f) {
  std::array<std::int64_t, kMaxDims> index{};
  std::array<std::int64_t, N> offset{};
  for (int d = 0; d < shape.ndim; ++d) {
    if (shape.shape[d] == 0) return;
  }
  while (true) {
    f(offset);
    int d = shape.ndim - 1;
    for (; d >= 0; --d) {
      for (std::size_t v = 0; v < N; ++v) offset[v] += views[v]->strides[d];
      if (++index[d] < shape.shape[d]) break;
      for (std::size_t v = 0; v < N; ++v) offset[v] -= views[v]->strides[d] * shape.shape[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

// The element of a rank-4 view.
template <class T>
T& at(const View& v, std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t l) {
  return static_cast<T*>(
      v.data)[i * v.strides[0] + j * v.strides[1] + k * v.strides[2] + l * v.strides[3]];
}

}  // namespace coshard::kernels::reference
