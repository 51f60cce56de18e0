#pragma once
// Functions that several elementwise kernels share, in float or double. Used by the .cu files only.
#include <cmath>

#include "kernels/cuda/typed.h"
#include "runtime/device/cuda/pack.h"

namespace coshard::kernels::cuda {

template <class W>
CS_BODY W sigmoid(W x) {
  return W(1) / (W(1) + std::exp(-x));
}
template <class W>
CS_BODY W silu(W x) {
  return x * sigmoid(x);
}
template <class W>
CS_BODY W silu_slope(W x) {
  const W s = sigmoid(x);
  return s * (W(1) + x * (W(1) - s));
}
// Of the standard normal distribution.
template <class W>
CS_BODY W normal_cdf(W x) {
  return W(0.5) * (W(1) + std::erf(x * W(0.70710678118654752440)));
}
constexpr double kGeluTanhScale = 0.7978845608028654;  // sqrt(2 / pi)
constexpr double kGeluTanhCubic = 0.044715;
template <class W>
CS_BODY W gelu_tanh_inner(W x) {
  return std::tanh(W(kGeluTanhScale) * (x + W(kGeluTanhCubic) * x * x * x));
}

// The same function of every element of a tile.
template <class W, int N, class F>
CS_BODY void each(W (&x)[N], const F& f) {
  CS_UNROLL
  for (int i = 0; i < N; ++i) x[i] = f(x[i]);
}

// Integers wrap around, as unsigned numbers do.
template <class T>
CS_BODY T wrapping_add(T a, T b) {
  using Bits = std::make_unsigned_t<T>;
  return static_cast<T>(static_cast<Bits>(a) + static_cast<Bits>(b));
}
template <class T>
CS_BODY T wrapping_multiply(T a, T b) {
  using Bits = std::make_unsigned_t<T>;
  return static_cast<T>(static_cast<Bits>(a) * static_cast<Bits>(b));
}
template <class T>
CS_BODY T wrapping_negate(T a) {
  using Bits = std::make_unsigned_t<T>;
  return static_cast<T>(Bits{0} - static_cast<Bits>(a));
}

}  // namespace coshard::kernels::cuda
