#pragma once
// Integer arithmetic with two's complement wraparound; on the host and on devices (constexpr).
#include <type_traits>

namespace coshard::kernels {

template <class T>
constexpr T wrapping_add(T a, T b) {
  using Bits = std::make_unsigned_t<T>;
  return static_cast<T>(static_cast<Bits>(a) + static_cast<Bits>(b));
}
template <class T>
constexpr T wrapping_multiply(T a, T b) {
  using Bits = std::make_unsigned_t<T>;
  return static_cast<T>(static_cast<Bits>(a) * static_cast<Bits>(b));
}
template <class T>
constexpr T wrapping_negate(T a) {
  using Bits = std::make_unsigned_t<T>;
  return static_cast<T>(Bits{0} - static_cast<Bits>(a));
}

// Rounded toward 0; 0 if b is 0.
template <class T>
constexpr T integer_quotient(T a, T b) {
  return b == 0 ? T(0) : b == -1 ? wrapping_negate(a) : static_cast<T>(a / b);
}
// With the sign of b; 0 if b is 0.
template <class T>
constexpr T integer_remainder(T a, T b) {
  if (b == 0 || b == -1) return 0;
  const T rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// base^exponent; for a negative exponent the integer part (0 stays 0).
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
