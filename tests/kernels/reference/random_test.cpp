// The smallest and the largest words that Philox gives, where a normal is almost infinite and zero.
#include <cmath>
#include <numbers>

#include "kernels/philox.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {
using namespace testing;

// Seed 1, stream 0. At these elements the first word's upper 24 bits are all zeros and all ones.
constexpr std::int64_t kZeros = 67610924, kOnes = 33674056;

double drawn(RandomKind kind, std::int64_t index) {
  Data out(DType::F64, 1);
  reference::run(Random{kind, DType::F64, {1, {1}, {index}, {1}}, 1, 0, 1, 0, out.ptr()});
  return out.get(0);
}

std::uint32_t upper_bits(std::int64_t index) {
  const auto i = static_cast<std::uint64_t>(index);
  return philox_block(1, 0, i / 4)[i % 4] >> 8;
}

TEST(ReferenceRandom, AUniformIsInZeroToOneWithoutOne) {
  ASSERT_EQ(upper_bits(kZeros), 0U);
  ASSERT_EQ(upper_bits(kOnes), 0xFFFFFFU);
  EXPECT_EQ(drawn(RandomKind::Uniform, kZeros), 0);
  EXPECT_EQ(drawn(RandomKind::Uniform, kOnes), 1 - std::ldexp(1, -24));
}

// Box-Muller takes the logarithm of a number in (0, 1]: of 2^-24, and of 1.
TEST(ReferenceRandom, ANormalOfTheSmallestWordIsFiniteAndOfTheLargestZero) {
  const double angle = 2 * std::numbers::pi * std::ldexp(upper_bits(kZeros + 1), -24);
  const double radius = std::sqrt(48 * std::numbers::ln2);
  EXPECT_DOUBLE_EQ(drawn(RandomKind::Normal, kZeros), radius * std::cos(angle));
  EXPECT_DOUBLE_EQ(drawn(RandomKind::Normal, kZeros + 1), radius * std::sin(angle));
  EXPECT_EQ(drawn(RandomKind::Normal, kOnes), 0);
  EXPECT_EQ(drawn(RandomKind::Normal, kOnes + 1), 0);
}

}  // namespace
}  // namespace coshard::kernels
