#pragma once
// Elementary functions of a register of floats (math.h).
#include "kernels/cpu/simd/vec.h"

namespace coshard::kernels::cpu::COSHARD_ISA {

constexpr float kRoundToInt =
    12582912.0F;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits

// p * 2^n for n = shifted - kRoundToInt; in two factors, since 2^n alone may overflow or underflow.
COSHARD_INLINE Vec scale_by_power(Vec p, Vec shifted) {
#if defined(__AVX512F__)
  return _mm512_maskz_scalef_ps(kEvery, p, shifted - kRoundToInt);
#else
  const IVec n = bits(shifted) - all_ints(0x4B400000);
  const IVec half = n >> 1;
  return p * from_bits((half + 127) << 23) * from_bits((n - half + 127) << 23);
#endif
}

COSHARD_INLINE Vec exponential(Vec x) {
  x = larger(all(-104.0F), x);
  x = smaller(all(89.0F), x);
  const Vec shifted = x * 1.44269504F + kRoundToInt;
  const Vec nf = shifted - kRoundToInt;
  const Vec r = (x - nf * 0.693359375F) + nf * 2.12194440e-4F;
  Vec p = all(1.9875691500e-4F);
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = (p * r) * r + r + 1.0F;
  return scale_by_power(p, shifted);
}

COSHARD_INLINE Vec logarithm(Vec x) {
  const IVec tiny = x < all(1.17549435e-38F);
  const Vec scaled = select(tiny, x * 33554432.0F, x);
  const UVec b = reinterpret_cast<UVec>(scaled);
  // The mantissa in [sqrt(1/2), sqrt(2)).
  const IVec e = reinterpret_cast<IVec>(b - 0x3f3504f3U) >> 23;
  const Vec m = reinterpret_cast<Vec>(b - (reinterpret_cast<UVec>(e) << 23)) - 1.0F;
  const Vec ef = __builtin_convertvector(e, Vec) - select(tiny, all(25.0F), Vec{});
  Vec p = all(7.0376836292e-2F);
  p = p * m - 1.1514610310e-1F;
  p = p * m + 1.1676998740e-1F;
  p = p * m - 1.2420140846e-1F;
  p = p * m + 1.4249322787e-1F;
  p = p * m - 1.6668057665e-1F;
  p = p * m + 2.0000714765e-1F;
  p = p * m - 2.4999993993e-1F;
  p = p * m + 3.3333331174e-1F;
  const Vec square = m * m;
  Vec y = (p * m) * square + ef * -2.12194440e-4F;
  y = y - 0.5F * square;
  Vec result = (m + y) + ef * 0.693359375F;
  result = select(x == all(kInf), x, result);
  result = select(x == all(0.0F), all(-kInf), result);
  return select((x < all(0.0F)) | (x != x), all(__builtin_nanf("")), result);
}

COSHARD_INLINE Vec hyperbolic_tangent(Vec x) {
  const Vec size = absolute(x);
  const Vec square = x * x;
  Vec p = all(-5.70498872745e-3F);
  p = p * square + 2.06390887954e-2F;
  p = p * square - 5.37397155531e-2F;
  p = p * square + 1.33314422036e-1F;
  p = p * square - 3.33332819422e-1F;
  const Vec small = p * square * x + x;
  const Vec big = 1.0F - 2.0F / (exponential(size + size) + 1.0F);
  return select(size < all(0.625F), small, copy_sign(big, x));
}

COSHARD_INLINE Vec error_function(Vec x) {
  const Vec t = absolute(x);
  const Vec s = x * x;
  Vec big = all(-1.72853470e-5F) * t + 3.83197126e-4F;
  const Vec odd = all(-3.88396438e-3F) * t + 2.42546219e-2F;
  big = big * s + odd;
  big = big * t - 1.06777877e-1F;
  big = big * t - 6.34846687e-1F;
  big = big * t - 1.28717512e-1F;
  big = big * t - t;
  big = copy_sign(1.0F - exponential(big), x);
  Vec small = all(-5.96761703e-4F);
  small = small * s + 4.99119423e-3F;
  small = small * s - 2.67681349e-2F;
  small = small * s + 1.12819925e-1F;
  small = small * s - 3.76125336e-1F;
  small = small * s + 1.28379166e-1F;
  small = small * x + x;
  // Above 4 the result is +-1, and the polynomial would be NaN for infinities.
  big = select(t > all(4.0F), copy_sign(all(1.0F), x), big);
  return select(t > all(0.927734375F), big, small);
}

// cos and sin of 2 pi u for u in [0, 1).
COSHARD_INLINE void turn(Vec u, Vec& cosine, Vec& sine) {
  const Vec quarter = u * 4.0F + kRoundToInt;
  const IVec q = bits(quarter) & 3;
  const Vec r = (u - (quarter - kRoundToInt) * 0.25F) * 6.28318531F;
  const Vec s = r * r;
  Vec c = all(2.443315711809948e-5F);
  c = c * s - 1.388731625493765e-3F;
  c = c * s + 4.166664568298827e-2F;
  c = c * s * s - 0.5F * s + 1.0F;
  Vec d = all(-1.9515295891e-4F);
  d = d * s + 8.3321608736e-3F;
  d = d * s - 1.6666654611e-1F;
  d = d * s * r + r;
  const IVec swap = (q & 1) != 0;
  const Vec x = select(swap, d, c);
  const Vec y = select(swap, c, d);
  cosine = select((q == 1) | (q == 2), -x, x);
  sine = select(q >= 2, -y, y);
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
