#pragma once
// Registers of floats from and to elements that are stored in another width: bf16, f16 and f64.
#include "kernels/cpu/simd/register.h"

#if !defined(COSHARD_F64)

namespace coshard::kernels::cpu::COSHARD_ISA {

using HalfWords [[gnu::vector_size(2 * kLanes)]] = std::uint16_t;
using DVec [[gnu::vector_size(4 * kLanes)]] = double;
using HalfVec [[gnu::vector_size(2 * kLanes)]] = float;

COSHARD_INLINE Vec load(const BFloat16* from) {
  HalfWords half;
  std::memcpy(&half, from, sizeof half);
  return from_bits(reinterpret_cast<IVec>(__builtin_convertvector(half, UVec) << 16));
}
COSHARD_INLINE void store(BFloat16* to, Vec v) {
  const UVec u = reinterpret_cast<UVec>(v);
  const UVec up = (u + 0x7fffU + ((u >> 16) & 1U)) >> 16;
  const UVec nan = (u >> 16) | 0x40U;
  const HalfWords half = __builtin_convertvector((v != v) ? nan : up, HalfWords);
  std::memcpy(static_cast<void*>(to), &half, sizeof half);
}

COSHARD_INLINE Vec load(const Float16* from) {
#if defined(__AVX512F__)
  __m256i half;
  std::memcpy(&half, from, sizeof half);
  return _mm512_maskz_cvtph_ps(kEvery, half);
#elif defined(__F16C__)
  __m128i half;
  std::memcpy(&half, from, sizeof half);
  return _mm256_cvtph_ps(half);
#else  // as Float16 does
  HalfWords words;
  std::memcpy(&words, from, sizeof words);
  const IVec stored = reinterpret_cast<IVec>(__builtin_convertvector(words, UVec));
  const IVec half = stored & 0x7fff;
  const IVec special = half > 0x7bff, tiny = half < 0x400;
  const IVec normal = (half << 13) + 0x38000000 + (special & 0x38000000);
  const IVec small = bits(__builtin_convertvector(half, Vec) * 0x1p-24F);
  return from_bits((tiny ? small : normal) | ((stored & 0x8000) << 16));
#endif
}
COSHARD_INLINE void store(Float16* to, Vec v) {
#if defined(__AVX512F__)
  const __m256i half = _mm512_maskz_cvtps_ph(kEvery, v, _MM_FROUND_TO_NEAREST_INT);
  std::memcpy(static_cast<void*>(to), &half, sizeof half);
#elif defined(__F16C__)
  const __m128i half = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
  std::memcpy(static_cast<void*>(to), &half, sizeof half);
#else  // as Float16 does
  const IVec size = bits(absolute(v));
  const IVec nan = 0x7e00 | ((size >> 13) & 0x3ff);
  const IVec small = bits(from_bits(size) + 0.5F) - 0x3f000000;
  const IVec normal = (size - 0x38000000 + 0xfff + ((size >> 13) & 1)) >> 13;
  IVec half = size < 0x477ff000 ? normal : all_ints(0x7c00);
  half = size < 0x38800000 ? small : half;
  half = size > 0x7f800000 ? nan : half;
  const UVec sign = (reinterpret_cast<UVec>(v) >> 16) & 0x8000U;
  const HalfWords words = __builtin_convertvector(reinterpret_cast<UVec>(half) | sign, HalfWords);
  std::memcpy(static_cast<void*>(to), &words, sizeof words);
#endif
}

COSHARD_INLINE Vec load(const double* from) {
  DVec halves[2];
  std::memcpy(halves, from, sizeof halves);
  const HalfVec narrow[2] = {__builtin_convertvector(halves[0], HalfVec),
                             __builtin_convertvector(halves[1], HalfVec)};
  Vec v;
  std::memcpy(&v, narrow, sizeof v);
  return v;
}
COSHARD_INLINE void store(double* to, Vec v) {
  HalfVec narrow[2];
  std::memcpy(narrow, &v, sizeof v);
  const DVec halves[2] = {__builtin_convertvector(narrow[0], DVec),
                          __builtin_convertvector(narrow[1], DVec)};
  std::memcpy(to, halves, sizeof halves);
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
#endif
