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
#else
  Vec v{};
  for (int l = 0; l < kLanes; ++l) v[l] = from[l];
  return v;
#endif
}
COSHARD_INLINE void store(Float16* to, Vec v) {
#if defined(__AVX512F__)
  const __m256i half = _mm512_maskz_cvtps_ph(kEvery, v, _MM_FROUND_TO_NEAREST_INT);
  std::memcpy(static_cast<void*>(to), &half, sizeof half);
#elif defined(__F16C__)
  const __m128i half = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
  std::memcpy(static_cast<void*>(to), &half, sizeof half);
#else
  for (int l = 0; l < kLanes; ++l) to[l] = v[l];
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
