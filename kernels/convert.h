#pragma once
// How values change their type, on every back end alike.
#include <limits>
#include <type_traits>

#include <coshard/runtime/dtype.h>

namespace coshard::kernels {

// Through float to and from bf16 and f16; to bool: whether it is not 0.
template <class To, class From>
constexpr To converted(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (is_short_float<To>) {
    return To(static_cast<float>(value));
  } else if constexpr (is_short_float<From>) {
    return static_cast<To>(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

// A bound of an integer clamp; infinities are the ends of the range.
template <class T>
T integer_bound(double value) {
  if (value <= static_cast<double>(std::numeric_limits<T>::min()))
    return std::numeric_limits<T>::min();
  if (value >= static_cast<double>(std::numeric_limits<T>::max()))
    return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}

}  // namespace coshard::kernels
