#pragma once
// Element types, their sizes and names, and the value types of those that C++ lacks. Shared by all
// layers.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string_view>
#include <type_traits>

#pragma GCC visibility push(default)
namespace coshard {

// F8E4M3 and F8E5M2 are torch.float8_e4m3fn and torch.float8_e5m2: stored, moved, cast and
// redistributed, but not computed with.
enum class DType : std::uint8_t { F32, F64, BF16, I64, I32, Bool, F16, F8E4M3, F8E5M2 };

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::F64:
    case DType::I64: return 8;
    case DType::F32:
    case DType::I32: return 4;
    case DType::BF16:
    case DType::F16: return 2;
    case DType::Bool:
    case DType::F8E4M3:
    case DType::F8E5M2: return 1;
  }
  return 0;
}
// Whether operators compute with it as a floating-point number, which also has gradients. Not so the
// 8-bit floats.
constexpr bool is_floating(DType dtype) {
  return dtype == DType::F32 || dtype == DType::F64 || dtype == DType::BF16 || dtype == DType::F16;
}
constexpr bool is_float8(DType dtype) { return dtype == DType::F8E4M3 || dtype == DType::F8E5M2; }
[[noreturn]] void fail_without_arithmetic(DType dtype);  // Error{Unsupported}, with the remedy
std::string_view to_string(DType dtype);                 // "f32", "bf16", ...
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

// IEEE 754 binary16: 5 exponent bits, subnormals down to 2^-24, at most 65504. Conversion rounds to
// nearest even and keeps NaN; values from 65520 become infinity.
struct Float16 {
  std::uint16_t bits = 0;
  Float16() = default;
  constexpr Float16(float value) {  // NOLINT: implicit on purpose, as for float
#if defined(__CUDA_ARCH__)
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t size = u & 0x7fffffffU;
    std::uint32_t half = 0x7c00U;
    if (size > 0x7f800000U) {
      half = 0x7e00U | ((size >> 13) & 0x3ffU);
    } else if (size < 0x38800000U) {  // subnormal: beside 0.5, floats lie 2^-24 apart
      half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5F) - 0x3f000000U;
    } else if (size < 0x477ff000U) {
      half = (size - 0x38000000U + 0xfffU + ((size >> 13) & 1U)) >> 13;
    }
    bits = static_cast<std::uint16_t>((u >> 16 & 0x8000U) | half);
#endif
  }
  constexpr operator float() const {  // NOLINT
#if defined(__CUDA_ARCH__)
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    const std::uint32_t half = bits & 0x7fffU;
    std::uint32_t size = (half << 13) + 0x38000000U;
    if (half >= 0x7c00U) size += 0x38000000U;
    if (half < 0x400U) size = std::bit_cast<std::uint32_t>(static_cast<float>(half) * 0x1p-24F);
    return std::bit_cast<float>((std::uint32_t{bits} & 0x8000U) << 16 | size);
#endif
  }
};
static_assert(sizeof(Float16) == 2);

// An 8-bit float of the OCP specification "OFP8", with `kMantissa` bits of mantissa. Conversion from
// f32 rounds to nearest even, as PyTorch 2.15 does. With 3 (E4M3): subnormals down to 2^-9, at most
// 448, which larger values and infinities become; NaN is kept. With 2 (E5M2): subnormals down to
// 2^-16, at most 57344; values from 61440 become infinity.
template <int kMantissa>
struct Float8 {
  static_assert(kMantissa == 2 || kMantissa == 3);
  std::uint8_t bits = 0;
  Float8() = default;
  constexpr Float8(float value) {  // NOLINT: implicit on purpose, as for float
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t size = u & 0x7fffffffU;
    std::uint32_t small = kLargest;
    if (size > 0x7f800000U) {
      small = 0x7fU;
    } else if (size < (127U - kBias + 1)
                          << 23) {  // subnormal: floats beside kBeside lie as far apart
      constexpr std::uint32_t kBeside = (151U - kBias - kMantissa) << 23;
      const float sum = std::bit_cast<float>(size) + std::bit_cast<float>(kBeside);
      small = std::bit_cast<std::uint32_t>(sum) - kBeside;
    } else if (size < kOverflow) {
      constexpr std::uint32_t kDropped = 23 - kMantissa;
      const std::uint32_t half = (1U << (kDropped - 1)) - 1 + ((size >> kDropped) & 1U);
      small = (size - ((127U - kBias) << 23) + half) >> kDropped;
      if (small > kLargest) small = kLargest;
    }
    bits = static_cast<std::uint8_t>((u >> 24 & 0x80U) | small);
  }
  constexpr operator float() const {  // NOLINT
    const std::uint32_t small = bits & 0x7fU;
    std::uint32_t size = (small << (23 - kMantissa)) + ((127U - kBias) << 23);
    if (small >= kNoNumber) size = (small << (23 - kMantissa)) | 0x7f800000U;
    if (small < 1U << kMantissa) {
      constexpr std::uint32_t kLeast = (128U - kBias - kMantissa) << 23;
      size = std::bit_cast<std::uint32_t>(static_cast<float>(small) * std::bit_cast<float>(kLeast));
    }
    return std::bit_cast<float>((std::uint32_t{bits} & 0x80U) << 24 | size);
  }

 private:
  static constexpr std::uint32_t kBias = kMantissa == 3 ? 7 : 15;
  static constexpr std::uint32_t kNoNumber = kMantissa == 3 ? 0x7f : 0x7c;  // NaN, or infinity
  static constexpr std::uint32_t kLargest = kMantissa == 3 ? 0x7e : 0x7c;   // that numbers become
  static constexpr std::uint32_t kOverflow = kMantissa == 3 ? 0x43f00000 : 0x47800000;
};
using Float8E4M3 = Float8<3>;
using Float8E5M2 = Float8<2>;
static_assert(sizeof(Float8E4M3) == 1 && sizeof(Float8E5M2) == 1);

// Stored in 16 bits, computed in f32.
template <class T>
constexpr bool is_short_float = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

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
struct DTypeOf<Float16> {
  static constexpr DType value = DType::F16;
};
template <>
struct DTypeOf<Float8E4M3> {
  static constexpr DType value = DType::F8E4M3;
};
template <>
struct DTypeOf<Float8E5M2> {
  static constexpr DType value = DType::F8E5M2;
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
#pragma GCC visibility pop
