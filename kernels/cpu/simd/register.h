#pragma once
// One register of floats, or of doubles in the sets for f64, in the compilers' vector extensions.
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/args.h"

#define COSHARD_INLINE [[gnu::always_inline]] inline

namespace coshard::kernels::cpu::COSHARD_ISA {

#if defined(COSHARD_F64)
using Real = double;
#else
using Real = float;
#endif

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX2__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif
constexpr int kLanes = kBytes / sizeof(Real);

using Int = std::conditional_t<sizeof(Real) == 4, std::int32_t, std::int64_t>;
using Vec [[gnu::vector_size(kBytes)]] = Real;
using IVec [[gnu::vector_size(kBytes)]] = Int;
using UVec [[gnu::vector_size(kBytes)]] = std::make_unsigned_t<Int>;

constexpr Real kInf = std::numeric_limits<Real>::infinity();

COSHARD_INLINE Vec all(Real value) { return value - Vec{}; }
COSHARD_INLINE IVec all_ints(Int value) { return value - IVec{}; }
COSHARD_INLINE IVec bits(Vec v) { return reinterpret_cast<IVec>(v); }
COSHARD_INLINE Vec from_bits(IVec v) { return reinterpret_cast<Vec>(v); }
COSHARD_INLINE Vec select(IVec mask, Vec yes, Vec no) { return mask ? yes : no; }
COSHARD_INLINE Vec absolute(Vec v) {
  return from_bits(bits(v) & all_ints(std::numeric_limits<Int>::max()));
}
COSHARD_INLINE Vec copy_sign(Vec size, Vec sign) {
  return from_bits((bits(size) & all_ints(std::numeric_limits<Int>::max())) |
                   (bits(sign) & all_ints(std::numeric_limits<Int>::min())));
}
COSHARD_INLINE IVec lane_index() {
  IVec index;
  for (int l = 0; l < kLanes; ++l) index[l] = l;
  return index;
}

// larger(a, b) = a > b ? a : b, and b when either is NaN; smaller likewise.
#if defined(__AVX512F__)
// The masked forms: g++ 12 warns of uninitialised values inside the plain ones.
#if defined(COSHARD_F64)
using Mask = __mmask8;
constexpr Mask kEvery = 0xff;
COSHARD_INLINE Vec larger(Vec a, Vec b) { return _mm512_maskz_max_pd(kEvery, a, b); }
COSHARD_INLINE Vec smaller(Vec a, Vec b) { return _mm512_maskz_min_pd(kEvery, a, b); }
COSHARD_INLINE Vec square_root(Vec v) { return _mm512_maskz_sqrt_pd(kEvery, v); }
#else
using Mask = __mmask16;
constexpr Mask kEvery = 0xffff;
COSHARD_INLINE Vec larger(Vec a, Vec b) { return _mm512_maskz_max_ps(kEvery, a, b); }
COSHARD_INLINE Vec smaller(Vec a, Vec b) { return _mm512_maskz_min_ps(kEvery, a, b); }
COSHARD_INLINE Vec square_root(Vec v) { return _mm512_maskz_sqrt_ps(kEvery, v); }
#endif
#elif defined(__AVX2__)
#if defined(COSHARD_F64)
COSHARD_INLINE Vec larger(Vec a, Vec b) { return _mm256_max_pd(a, b); }
COSHARD_INLINE Vec smaller(Vec a, Vec b) { return _mm256_min_pd(a, b); }
COSHARD_INLINE Vec square_root(Vec v) { return _mm256_sqrt_pd(v); }
#else
COSHARD_INLINE Vec larger(Vec a, Vec b) { return _mm256_max_ps(a, b); }
COSHARD_INLINE Vec smaller(Vec a, Vec b) { return _mm256_min_ps(a, b); }
COSHARD_INLINE Vec square_root(Vec v) { return _mm256_sqrt_ps(v); }
#endif
#else
COSHARD_INLINE Vec larger(Vec a, Vec b) { return a > b ? a : b; }
COSHARD_INLINE Vec smaller(Vec a, Vec b) { return a < b ? a : b; }
COSHARD_INLINE Vec square_root(Vec v) {
  for (int l = 0; l < kLanes; ++l) v[l] = __builtin_sqrt(v[l]);
  return v;
}
#endif
COSHARD_INLINE Real square_root(Real value) {
  return sizeof(Real) == 4 ? __builtin_sqrtf(value) : __builtin_sqrt(value);
}
// Like larger and smaller, but NaN wins.
COSHARD_INLINE Vec maximum(Vec a, Vec b) { return select(a != a, a, larger(a, b)); }
COSHARD_INLINE Vec minimum(Vec a, Vec b) { return select(a != a, a, smaller(a, b)); }

COSHARD_INLINE Vec load(const Real* from) {
  Vec v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
COSHARD_INLINE void store(Real* to, Vec v) { std::memcpy(to, &v, sizeof v); }

}  // namespace coshard::kernels::cpu::COSHARD_ISA
