#pragma once
// Registers (register.h): loads and stores of stored types, also partial ones, and sums. Whole
// registers and tails run the same code, so a result does not depend on an element's position.
#include "kernels/cpu/simd/narrow.h"

namespace coshard::kernels::cpu::COSHARD_ISA {

// The first `count` lanes; the rest are `rest`. Conversions are not inlined: a tail is short, and its
// code would be most of a loop's.
template <class T>
[[gnu::noinline]] inline Vec load_part(const T* from, std::int64_t count, Real rest = 0) {
  T lanes[kLanes] = {};
  for (int l = 0; l < count; ++l) lanes[l] = from[l];
  return select(lane_index() < all_ints(static_cast<Int>(count)), load(lanes), all(rest));
}
template <class T>
[[gnu::noinline]] inline void store_part(T* to, Vec v, std::int64_t count) {
  T lanes[kLanes];
  store(lanes, v);
  for (int l = 0; l < count; ++l) to[l] = lanes[l];
}

#if defined(__AVX512F__)
COSHARD_INLINE Mask first_lanes(std::int64_t count) { return static_cast<Mask>((1U << count) - 1); }
COSHARD_INLINE Vec load_part(const Real* from, std::int64_t count, Real rest = 0) {
#if defined(COSHARD_F64)
  return _mm512_mask_loadu_pd(all(rest), first_lanes(count), from);
#else
  return _mm512_mask_loadu_ps(all(rest), first_lanes(count), from);
#endif
}
COSHARD_INLINE void store_part(Real* to, Vec v, std::int64_t count) {
#if defined(COSHARD_F64)
  _mm512_mask_storeu_pd(to, first_lanes(count), v);
#else
  _mm512_mask_storeu_ps(to, first_lanes(count), v);
#endif
}
#else
COSHARD_INLINE Vec load_part(const Real* from, std::int64_t count, Real rest = 0) {
  Real lanes[kLanes];
  for (int l = 0; l < kLanes; ++l) lanes[l] = l < count ? from[l] : rest;
  return load(lanes);
}
COSHARD_INLINE void store_part(Real* to, Vec v, std::int64_t count) {
  for (int l = 0; l < count; ++l) to[l] = v[l];
}
#endif

// Reduces all lanes by halves, in the same order for every register width. `join` takes vectors of
// 16 bytes.
using Piece [[gnu::vector_size(16)]] = Real;
template <class Join>
COSHARD_INLINE Real join_lanes(Vec v, Join join) {
  Piece pieces[kBytes / 16];
  std::memcpy(pieces, &v, sizeof v);
  for (int width = kBytes / 32; width > 0; width /= 2) {
    for (int q = 0; q < width; ++q) pieces[q] = join(pieces[q], pieces[q + width]);
  }
#if defined(COSHARD_F64)
  return join(pieces[0], Piece{pieces[0][1], pieces[0][1]})[0];
#else
  const Piece all4 = pieces[0];
  const Piece pair = join(all4, Piece{all4[2], all4[3], all4[2], all4[3]});
  return join(pair, Piece{pair[1], pair[1], pair[1], pair[1]})[0];
#endif
}
COSHARD_INLINE Real sum_lanes(Vec v) {
  return join_lanes(v, [](Piece a, Piece b) { return a + b; });
}
// NaN in any lane wins.
COSHARD_INLINE Real largest_lane(Vec v) {
  return join_lanes(v, [](Piece a, Piece b) { return ((a != a) | (a > b)) ? a : b; });
}
COSHARD_INLINE Real smallest_lane(Vec v) {
  return join_lanes(v, [](Piece a, Piece b) { return ((a != a) | (a < b)) ? a : b; });
}

// Loads and stores of a whole register, and of a partial one.
struct Whole {
  template <class T>
  COSHARD_INLINE Vec load(const T* from, Real = 0) const {
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
  COSHARD_INLINE Vec load(const T* from, Real rest = 0) const {
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
