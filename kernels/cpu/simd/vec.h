#pragma once
// One register of floats, in the compilers' vector extensions: loads, stores (also partial and
// bf16), selects and sums. Whole registers and tails run the same code, so a result does not depend
// on an element's position.
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/args.h"

#define COSHARD_INLINE [[gnu::always_inline]] inline

namespace coshard::kernels::cpu::COSHARD_ISA {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

using Vec [[gnu::vector_size(4 * kLanes)]] = float;
using IVec [[gnu::vector_size(4 * kLanes)]] = std::int32_t;
using UVec [[gnu::vector_size(4 * kLanes)]] = std::uint32_t;
using HalfWords [[gnu::vector_size(2 * kLanes)]] = std::uint16_t;
using DVec [[gnu::vector_size(4 * kLanes)]] = double;
using HalfVec [[gnu::vector_size(2 * kLanes)]] = float;

COSHARD_INLINE Vec all(float value) { return value - Vec{}; }
COSHARD_INLINE IVec all_ints(std::int32_t value) { return value - IVec{}; }
COSHARD_INLINE IVec bits(Vec v) { return reinterpret_cast<IVec>(v); }
COSHARD_INLINE Vec from_bits(IVec v) { return reinterpret_cast<Vec>(v); }
COSHARD_INLINE Vec select(IVec mask, Vec yes, Vec no) { return mask ? yes : no; }
COSHARD_INLINE Vec absolute(Vec v) { return from_bits(bits(v) & all_ints(0x7fffffff)); }
COSHARD_INLINE IVec lane_index() {
  IVec index;
  for (int l = 0; l < kLanes; ++l) index[l] = l;
  return index;
}

// larger(a, b) = a > b ? a : b, and b when either is NaN; smaller likewise.
#if defined(__AVX512F__)
// The masked forms: g++ 12 warns of uninitialised values inside the plain ones.
constexpr __mmask16 kEvery = 0xffff;
COSHARD_INLINE Vec larger(Vec a, Vec b) { return _mm512_maskz_max_ps(kEvery, a, b); }
COSHARD_INLINE Vec smaller(Vec a, Vec b) { return _mm512_maskz_min_ps(kEvery, a, b); }
COSHARD_INLINE Vec square_root(Vec v) { return _mm512_maskz_sqrt_ps(kEvery, v); }
#elif defined(__AVX2__)
COSHARD_INLINE Vec larger(Vec a, Vec b) { return _mm256_max_ps(a, b); }
COSHARD_INLINE Vec smaller(Vec a, Vec b) { return _mm256_min_ps(a, b); }
COSHARD_INLINE Vec square_root(Vec v) { return _mm256_sqrt_ps(v); }
#else
COSHARD_INLINE Vec larger(Vec a, Vec b) { return a > b ? a : b; }
COSHARD_INLINE Vec smaller(Vec a, Vec b) { return a < b ? a : b; }
COSHARD_INLINE Vec square_root(Vec v) {
  for (int l = 0; l < kLanes; ++l) v[l] = __builtin_sqrtf(v[l]);
  return v;
}
#endif
// Like larger and smaller, but NaN wins.
COSHARD_INLINE Vec maximum(Vec a, Vec b) { return select(a != a, a, larger(a, b)); }
COSHARD_INLINE Vec minimum(Vec a, Vec b) { return select(a != a, a, smaller(a, b)); }

COSHARD_INLINE Vec load(const float* from) {
  Vec v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
COSHARD_INLINE void store(float* to, Vec v) { std::memcpy(to, &v, sizeof v); }

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

// The first `count` lanes; the rest are `rest`.
template <class T>
COSHARD_INLINE Vec load_part(const T* from, std::int64_t count, float rest = 0) {
  T lanes[kLanes];
  const T filler(rest);
  for (int l = 0; l < kLanes; ++l) lanes[l] = l < count ? from[l] : filler;
  return load(lanes);
}
template <class T>
COSHARD_INLINE void store_part(T* to, Vec v, std::int64_t count) {
  T lanes[kLanes];
  store(lanes, v);
  for (int l = 0; l < count; ++l) to[l] = lanes[l];
}

#if defined(__AVX512F__)
COSHARD_INLINE Vec load_part(const float* from, std::int64_t count, float rest = 0) {
  return _mm512_mask_loadu_ps(all(rest), static_cast<__mmask16>((1U << count) - 1), from);
}
COSHARD_INLINE void store_part(float* to, Vec v, std::int64_t count) {
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1U << count) - 1), v);
}
#endif

// Reduces all lanes by halves, in the same order for every register width. `join` takes vectors of
// four.
using Quad [[gnu::vector_size(16)]] = float;
template <class Join>
COSHARD_INLINE float join_lanes(Vec v, Join join) {
  Quad quads[kLanes / 4];
  std::memcpy(quads, &v, sizeof v);
  for (int width = kLanes / 8; width > 0; width /= 2) {
    for (int q = 0; q < width; ++q) quads[q] = join(quads[q], quads[q + width]);
  }
  const Quad all4 = quads[0];
  const Quad pair = join(all4, Quad{all4[2], all4[3], all4[2], all4[3]});
  return join(pair, Quad{pair[1], pair[1], pair[1], pair[1]})[0];
}
COSHARD_INLINE float sum_lanes(Vec v) {
  return join_lanes(v, [](Quad a, Quad b) { return a + b; });
}
// NaN in any lane wins.
COSHARD_INLINE float largest_lane(Vec v) {
  return join_lanes(v, [](Quad a, Quad b) { return ((a != a) | (a > b)) ? a : b; });
}
COSHARD_INLINE float smallest_lane(Vec v) {
  return join_lanes(v, [](Quad a, Quad b) { return ((a != a) | (a < b)) ? a : b; });
}

// Loads and stores of a whole register, and of a partial one.
struct Whole {
  template <class T>
  COSHARD_INLINE Vec load(const T* from, float = 0) const {
    return COSHARD_ISA::load(from);
  }
  template <class T>
  COSHARD_INLINE void store(T* to, Vec v) const {
    COSHARD_ISA::store(to, v);
  }
};
struct Part {
  std::int64_t count;
  template <class T>
  COSHARD_INLINE Vec load(const T* from, float rest = 0) const {
    return load_part(from, count, rest);
  }
  template <class T>
  COSHARD_INLINE void store(T* to, Vec v) const {
    store_part(to, v, count);
  }
};

// Calls f(i, lanes) for i = begin, begin + kLanes, ... : `lanes` loads and stores the elements that
// exist.
template <class F>
COSHARD_INLINE void each_register(std::int64_t begin, std::int64_t end, F&& f) {
  std::int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) f(i, Whole{});
  if (i < end) f(i, Part{end - i});
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
