#pragma once
// Element types, their sizes and names, and the bf16 value type. Shared by all layers.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string_view>

namespace coshard {

enum class DType : std::uint8_t { F32, F64, BF16, I64, I32, Bool };

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::F64:
    case DType::I64: return 8;
    case DType::F32:
    case DType::I32: return 4;
    case DType::BF16: return 2;
    case DType::Bool: return 1;
  }
  return 0;
}
constexpr bool is_floating(DType dtype) {
  return dtype == DType::F32 || dtype == DType::F64 || dtype == DType::BF16;
}
std::string_view to_string(DType dtype);   // "f32", "bf16", ...
DType parse_dtype(std::string_view text);  // Error{BadInput} names the text and what is known
inline std::ostream& operator<<(std::ostream& out, DType dtype) { return out << to_string(dtype); }

// The upper half of an f32; conversion rounds to nearest even and keeps NaN.
struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  constexpr BFloat16(float value) {  // NOLINT: implicit on purpose, as for float
    auto u = std::bit_cast<std::uint32_t>(value);
    if ((u & 0x7fffffffU) > 0x7f800000U) {
      bits = static_cast<std::uint16_t>((u >> 16) | 0x40U);
    } else {
      bits = static_cast<std::uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
    }
  }
  constexpr operator float() const {  // NOLINT
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};
static_assert(sizeof(BFloat16) == 2);

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::F32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::F64;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::BF16;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::I64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::I32;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::Bool;
};
template <class T>
constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace coshard
