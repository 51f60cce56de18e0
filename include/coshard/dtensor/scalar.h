#pragma once
// A number as an operand beside a tensor. A value.
#include <concepts>

#include <coshard/runtime/dtype.h>

#pragma GCC visibility push(default)
namespace coshard {

template <class T>
concept Number = std::integral<T> || std::floating_point<T>;

// Remembers its category (bool, integer, floating-point): i64 + 2 is i64, i64 + 2.0 is f32. Exact
// for integers up to 2^53.
struct Scalar {
  double value = 0;
  DType dtype = DType::F32;  // Bool, I64 or F32: its category

  constexpr Scalar() = default;
  // Implicit, as in arithmetic.
  template <Number T>
  constexpr Scalar(T number)  // NOLINT
      : value(static_cast<double>(number)), dtype(category<T>()) {}

 private:
  template <class T>
  static constexpr DType category() {
    if (std::same_as<T, bool>) return DType::Bool;
    return std::integral<T> ? DType::I64 : DType::F32;
  }
};

}  // namespace coshard
#pragma GCC visibility pop
