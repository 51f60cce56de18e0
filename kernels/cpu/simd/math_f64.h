#pragma once
// Elementary functions of a register of doubles (math.h). The coefficients of the logarithm are
// fdlibm's, those of tanh and erf are Cephes's.
#include "kernels/cpu/simd/vec.h"

namespace coshard::kernels::cpu::COSHARD_ISA {

constexpr double kRoundToInt =
    6755399441055744.0;  // 1.5 * 2^52: adding it leaves the nearest integer in the low bits
constexpr double kLog2High = 6.93147180369123816490e-1;
constexpr double kLog2Low = 1.90821492927058770002e-10;

// first * x^(N-1) + ... by Horner's rule, the coefficient of the highest power first.
template <int N>
COSHARD_INLINE Vec polynomial(const double (&coefficients)[N], Vec x) {
  Vec p = all(coefficients[0]);
#pragma GCC unroll 16
  for (int i = 1; i < N; ++i) p = p * x + coefficients[i];
  return p;
}

// p * 2^n for n = shifted - kRoundToInt; in two factors, since 2^n alone may overflow or underflow.
COSHARD_INLINE Vec scale_by_power(Vec p, Vec shifted) {
#if defined(__AVX512F__)
  return _mm512_maskz_scalef_pd(kEvery, p, shifted - kRoundToInt);
#else
  const IVec n = bits(shifted) - all_ints(0x4338000000000000);
  const IVec half = n >> 1;
  return p * from_bits((half + 1023) << 52) * from_bits((n - half + 1023) << 52);
#endif
}

COSHARD_INLINE Vec exponential(Vec x) {
  constexpr double kTaylor[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
                                1.0 / 362880,     1.0 / 40320,     1.0 / 5040,     1.0 / 720,
                                1.0 / 120,        1.0 / 24,        1.0 / 6,        0.5};
  x = larger(all(-746.0), x);
  x = smaller(all(710.0), x);
  const Vec shifted = x * 1.44269504088896340736 + kRoundToInt;
  const Vec nf = shifted - kRoundToInt;
  const Vec r = (x - nf * kLog2High) - nf * kLog2Low;
  const Vec p = (polynomial(kTaylor, r) * r) * r + r + 1.0;
  return scale_by_power(p, shifted);
}

COSHARD_INLINE Vec logarithm(Vec x) {
  constexpr double kSeries[] = {1.479819860511658591e-1, 1.531383769920937332e-1,
                                1.818357216161805012e-1, 2.222219843214978396e-1,
                                2.857142874366239149e-1, 3.999999999940941908e-1,
                                6.666666666666735130e-1};
  const IVec tiny = x < all(std::numeric_limits<double>::min());
  const Vec scaled = select(tiny, x * 0x1p54, x);
  const UVec b = reinterpret_cast<UVec>(scaled);
  // The mantissa in [sqrt(1/2), sqrt(2)).
  const IVec e = reinterpret_cast<IVec>(b - 0x3fe6a09e667f3bcdU) >> 52;
  const Vec f = reinterpret_cast<Vec>(b - (reinterpret_cast<UVec>(e) << 52)) - 1.0;
  const Vec ef = __builtin_convertvector(e, Vec) - select(tiny, all(54.0), Vec{});
  const Vec s = f / (f + 2.0);
  const Vec z = s * s;
  const Vec half_square = 0.5 * f * f;
  const Vec rest = s * (half_square + polynomial(kSeries, z) * z) + ef * kLog2Low;
  Vec result = ef * kLog2High - ((half_square - rest) - f);
  result = select(x == all(kInf), x, result);
  result = select(x == all(0.0), all(-kInf), result);
  return select((x < all(0.0)) | (x != x), all(__builtin_nan("")), result);
}

COSHARD_INLINE Vec hyperbolic_tangent(Vec x) {
  constexpr double kAbove[] = {-9.64399179425052238628e-1, -9.92877231001918586564e1,
                               -1.61468768441708447952e3};
  constexpr double kBelow[] = {1.0, 1.12811678491632931402e2, 2.23548839060100448583e3,
                               4.84406305325125486048e3};
  const Vec size = absolute(x);
  const Vec square = x * x;
  const Vec small = polynomial(kAbove, square) / polynomial(kBelow, square) * square * x + x;
  const Vec big = 1.0 - 2.0 / (exponential(size + size) + 1.0);
  return select(size < all(0.625), small, copy_sign(big, x));
}

COSHARD_INLINE Vec error_function(Vec x) {
  constexpr double kSmallAbove[] = {9.60497373987051638749, 9.00260197203842689217e1,
                                    2.23200534594684319226e3, 7.00332514112805075473e3,
                                    5.55923013010394962768e4};
  constexpr double kSmallBelow[] = {1.0,
                                    3.35617141647503099647e1,
                                    5.21357949780152679795e2,
                                    4.59432382970980127987e3,
                                    2.26290000613890934246e4,
                                    4.92673942608635921086e4};
  constexpr double kBigAbove[] = {
      2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687,
      4.86371970985681366614e1,   1.96520832956077098242e2,  5.26445194995477358631e2,
      9.34528527171957607540e2,   1.02755188689515710272e3,  5.57535335369399327526e2};
  constexpr double kBigBelow[] = {1.0,
                                  1.32281951154744992508e1,
                                  8.67072140885989742329e1,
                                  3.54937778887819891062e2,
                                  9.75708501743205489753e2,
                                  1.82390916687909736289e3,
                                  2.24633760818710981792e3,
                                  1.65666309194161350182e3,
                                  5.57535340817727675546e2};
  const Vec size = absolute(x);
  const Vec square = x * x;
  const Vec small = x * polynomial(kSmallAbove, square) / polynomial(kSmallBelow, square);
  // Above 6 the result is +-1, and the polynomials would overflow.
  const Vec t = select(size > all(6.0), all(6.0), size);
  const Vec tail = exponential(-t * t) * polynomial(kBigAbove, t) / polynomial(kBigBelow, t);
  const Vec big = copy_sign(1.0 - tail, x);
  return select(size > all(1.0), big, small);
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
