// Linear.
#include <algorithm>
#include <type_traits>

#include "tests/styles/moments.h"
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

// From -bound to bound, and up to both ends.
void expect_uniform(const Tensor& x, double bound) {
  const std::vector<double> values = x.to_vector();
  const auto [low, high] = std::ranges::minmax(values);
  EXPECT_NEAR(low, -bound, 0.05 * bound);
  EXPECT_NEAR(high, bound, 0.05 * bound);
  EXPECT_LE(std::max(high, -low), bound);
}

TEST(Defaults, LinearStartsUniformWithTheInverseRootOfItsInputs) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::Linear linear(16, 400, world, {.dtype = DType::F64});
    expect_uniform(linear.weight, 0.25);
    expect_uniform(linear.bias, 0.25);
    nn::Linear normal(16, 400, world, {.dtype = DType::F64, .init_std = 0.02});
    EXPECT_NEAR(standard_deviation(normal.weight.to_vector()), 0.02, 0.001);
    EXPECT_EQ(normal.bias.to_vector(), std::vector<double>(400, 0));
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing
