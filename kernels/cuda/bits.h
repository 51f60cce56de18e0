#pragma once
// Elements as bits: kernels that only move elements need one body per element size. Used by the .cu
// files only.
#include <cstring>

#include "kernels/convert.h"
#include "kernels/cuda/typed.h"

namespace coshard::kernels::cuda {

// Calls f with an unsigned integer of the dtype's size.
template <class F>
void with_bits(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 1: return f(std::uint8_t{});
    case 2: return f(std::uint16_t{});
    case 4: return f(std::uint32_t{});
    default: return f(std::uint64_t{});
  }
}

// The bits of `value` as an element of `dtype`.
template <class Bits>
Bits bits_of(DType dtype, double value) {
  Bits bits{};
  if (is_float8(dtype)) {
    store_float(dtype, &bits, 0, static_cast<float>(value));
    return bits;
  }
  with_any(dtype, [&](auto tag) {
    const auto element = converted<decltype(tag)>(value);
    if constexpr (sizeof element == sizeof bits) std::memcpy(&bits, &element, sizeof bits);
  });
  return bits;
}

}  // namespace coshard::kernels::cuda
