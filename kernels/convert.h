#pragma once
// Conversions between element types, the same on every back end.
#include <cstdint>
#include <limits>
#include <type_traits>

#include <coshard/runtime/dtype.h>

namespace coshard::kernels {

// Via float to and from bf16 and f16; to bool: whether it is nonzero.
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

// An element of any dtype as a float, and a float as one: how 8-bit floats are cast.
constexpr float load_float(DType dtype, const void* data, std::int64_t at) {
  switch (dtype) {
    case DType::F32: return static_cast<const float*>(data)[at];
    case DType::F64: return static_cast<float>(static_cast<const double*>(data)[at]);
    case DType::BF16: return static_cast<const BFloat16*>(data)[at];
    case DType::F16: return static_cast<const Float16*>(data)[at];
    case DType::F8E4M3: return static_cast<const Float8E4M3*>(data)[at];
    case DType::F8E5M2: return static_cast<const Float8E5M2*>(data)[at];
    case DType::I64: return static_cast<float>(static_cast<const std::int64_t*>(data)[at]);
    case DType::I32: return static_cast<float>(static_cast<const std::int32_t*>(data)[at]);
    case DType::Bool: return static_cast<const bool*>(data)[at] ? 1.0F : 0.0F;
  }
  return 0;
}
constexpr void store_float(DType dtype, void* data, std::int64_t at, float value) {
  switch (dtype) {
    case DType::F32: static_cast<float*>(data)[at] = value; break;
    case DType::F64: static_cast<double*>(data)[at] = value; break;
    case DType::BF16: static_cast<BFloat16*>(data)[at] = value; break;
    case DType::F16: static_cast<Float16*>(data)[at] = value; break;
    case DType::F8E4M3: static_cast<Float8E4M3*>(data)[at] = value; break;
    case DType::F8E5M2: static_cast<Float8E5M2*>(data)[at] = value; break;
    case DType::I64: static_cast<std::int64_t*>(data)[at] = converted<std::int64_t>(value); break;
    case DType::I32: static_cast<std::int32_t*>(data)[at] = converted<std::int32_t>(value); break;
    case DType::Bool: static_cast<bool*>(data)[at] = value != 0; break;
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
