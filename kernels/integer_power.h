#pragma once
// Powers of integers, on the host and on devices (constexpr).
#include <type_traits>

namespace coshard::kernels {

// base^exponent, wrapping around as unsigned numbers do; of a negative exponent the integer part (0
// stays 0).
template <class T>
constexpr T integer_power(T base, T exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  using Bits = std::make_unsigned_t<T>;
  Bits result = 1;
  for (auto power = static_cast<Bits>(base); exponent > 0; exponent /= 2, power *= power)
    if (exponent % 2 != 0) result *= power;
  return static_cast<T>(result);
}

}  // namespace coshard::kernels
