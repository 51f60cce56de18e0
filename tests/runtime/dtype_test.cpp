#include <coshard/runtime/dtype.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

Float16 of_bits(int bits) { return std::bit_cast<Float16>(static_cast<std::uint16_t>(bits)); }

// By the definition of the format.
double value_of(int bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31)
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(Float16, HoldsWhatItsBitsSay) {
  for (int bits = 0; bits < 65536; ++bits) {
    const double got = static_cast<float>(of_bits(bits)), want = value_of(bits);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << bits;
    } else {
      EXPECT_EQ(got, want) << bits;
      EXPECT_EQ(std::signbit(got), std::signbit(want)) << bits;
    }
  }
}

TEST(Float16, GoesToFloatAndBack) {
  for (int bits = 0; bits < 65536; ++bits) {
    const Float16 back(static_cast<float>(of_bits(bits)));
    if (std::isnan(value_of(bits))) {
      EXPECT_TRUE(std::isnan(static_cast<float>(back))) << bits;
      EXPECT_EQ(back.bits >> 15, bits >> 15) << bits;
    } else {
      EXPECT_EQ(back.bits, bits);
    }
  }
}

// The bits of the nearest value of the same sign, the even one of two.
int nearest(double x) {
  const int sign = std::signbit(x) ? 0x8000 : 0;
  const double size = std::abs(x);
  int low = 0;
  for (int step = 0x4000; step > 0; step /= 2)
    if (low + step <= 0x7c00 && value_of(low + step) <= size) low += step;
  if (low == 0x7c00) return sign | low;
  const double above = low == 0x7bff ? 65536.0 : value_of(low + 1);  // where infinity begins to be
  const double down = size - value_of(low), up = above - size;
  return sign | (down < up || (down == up && low % 2 == 0) ? low : low + 1);
}

TEST(Float16, RoundsToTheNearestEven) {
  std::mt19937 engine(1);
  std::uniform_real_distribution<double> exponent(-27, 17);
  for (int i = 0; i < 20000; ++i) {
    const auto x = static_cast<float>(std::exp2(exponent(engine)) * (engine() % 2 == 0 ? 1 : -1));
    EXPECT_EQ(Float16(x).bits, nearest(x)) << x;
  }
  for (int bits = 0; bits < 0x7c00; ++bits) {  // halfway, and beside it
    const double above = bits == 0x7bff ? 65536.0 : value_of(bits + 1);
    const auto middle = static_cast<float>((value_of(bits) + above) / 2);
    for (const float x : {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, 1e6F)})
      EXPECT_EQ(Float16(x).bits, nearest(x)) << x;
  }
}

TEST(Float16, IsInfinityFrom65520On) {
  EXPECT_EQ(Float16(65519.996F).bits, 0x7bff);
  EXPECT_EQ(Float16(65520.0F).bits, 0x7c00);
  EXPECT_EQ(Float16(-1e30F).bits, 0xfc00);
  EXPECT_EQ(Float16(std::numeric_limits<float>::denorm_min()).bits, 0);
}

// All values of an 8-bit float by the definition of its format, and the nearest to a number.
template <int kMantissa>
struct ByDefinition {
  static double value(int bits) {
    const int most = kMantissa == 3 ? 0x7e : 0x7b, bias = kMantissa == 3 ? 7 : 15,
              one = 1 << kMantissa;
    const int size = bits & 127, exponent = size >> kMantissa, fraction = size % one;
    if (size == 0x7c && kMantissa == 2) return bits < 128 ? HUGE_VAL : -HUGE_VAL;
    if (size > most) return std::numeric_limits<double>::quiet_NaN();
    const double magnitude = exponent == 0
                                 ? std::ldexp(fraction, 1 - bias - kMantissa)
                                 : std::ldexp(one + fraction, exponent - bias - kMantissa);
    return bits < 128 ? magnitude : -magnitude;
  }
  static int nearest(double x) {
    const int most = kMantissa == 3 ? 0x7e : 0x7b;
    int best = 0;
    for (int bits = 0; bits <= most + 1;
         ++bits) {  // the one after the largest is as far as if it were a number
      const double here = bits <= most ? value(bits) : 2 * value(most) - value(most - 1);
      const double known = best <= most ? value(best) : 2 * value(most) - value(most - 1);
      const double nearer = std::abs(here - std::abs(x)) - std::abs(known - std::abs(x));
      if (nearer < 0 || (nearer == 0 && bits % 2 == 0)) best = bits;
    }
    return best | (std::signbit(x) ? 128 : 0);
  }
};

template <int kMantissa>
void expect_as_defined() {
  using Defined = ByDefinition<kMantissa>;
  for (int bits = 0; bits < 256; ++bits) {
    Float8<kMantissa> small;
    small.bits = static_cast<std::uint8_t>(bits);
    const double want = Defined::value(bits), got = static_cast<float>(small);
    EXPECT_EQ(std::isnan(got), std::isnan(want)) << bits;
    if (std::isnan(want)) continue;
    EXPECT_EQ(got, want) << bits;
    EXPECT_EQ(std::signbit(got), bits >= 128) << bits;
    EXPECT_EQ(Float8<kMantissa>(static_cast<float>(got)).bits, bits);
    if (bits % 128 > (kMantissa == 3 ? 0x7d : 0x7a)) continue;
    const auto middle = static_cast<float>((want + Defined::value(bits + 1)) / 2);
    for (const float x : {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, 2 * middle)})
      EXPECT_EQ(Float8<kMantissa>(x).bits, Defined::nearest(x)) << x;
  }
  std::mt19937 engine(1);
  std::uniform_real_distribution<double> exponent(-20, kMantissa == 3 ? 8.8 : 15.9);
  for (int i = 0; i < 5000; ++i) {
    const auto x = static_cast<float>(std::exp2(exponent(engine)) * (engine() % 2 == 0 ? 1 : -1));
    EXPECT_EQ(Float8<kMantissa>(x).bits, Defined::nearest(x)) << x;
  }
}

TEST(Float8, E4M3IsAsDefined) { expect_as_defined<3>(); }
TEST(Float8, E5M2IsAsDefined) { expect_as_defined<2>(); }

TEST(Float8, E4M3SaturatesAndE5M2Overflows) {
  for (const float x : {464.0F, 465.0F, 480.0F, 1e30F, HUGE_VALF}) {
    EXPECT_EQ(Float8E4M3(x).bits, 0x7e) << x;
    EXPECT_EQ(Float8E4M3(-x).bits, 0xfe) << x;
  }
  EXPECT_EQ(Float8E4M3(std::nanf("")).bits, 0x7f);
  EXPECT_EQ(Float8E5M2(61439.0F).bits, 0x7b);
  EXPECT_EQ(Float8E5M2(61440.0F).bits, 0x7c);
  EXPECT_EQ(Float8E5M2(-HUGE_VALF).bits, 0xfc);
}

TEST(DType, EveryOneHasANameASizeAndAType) {
  const DType all[] = {DType::F32, DType::F64,  DType::BF16,   DType::F16,   DType::I64,
                       DType::I32, DType::Bool, DType::F8E4M3, DType::F8E5M2};
  for (const DType dtype : all) EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
  EXPECT_EQ(to_string(DType::F16), "f16");
  EXPECT_EQ(size_of(DType::F16), 2U);
  EXPECT_TRUE(is_floating(DType::F16));
  EXPECT_EQ(dtype_of<Float16>, DType::F16);
  EXPECT_EQ(dtype_of<Float8E4M3>, DType::F8E4M3);
  EXPECT_EQ(size_of(DType::F8E5M2), 1U);
  EXPECT_FALSE(is_floating(DType::F8E5M2));
  EXPECT_THROW(parse_dtype("half"), Error);
}

}  // namespace
}  // namespace coshard
