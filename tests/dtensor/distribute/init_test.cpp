#include <coshard/dtensor/distribute/init.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/ranks.h"

namespace coshard {
namespace {

TEST(KaimingUniform, FillsItsRangeAsPyTorchDoes) {
  testing::on_ranks(1, [](World& world) -> Task<void> {
    for (const double a : {0.0, std::sqrt(5.0)}) {
      const Tensor x = Tensor::empty(world.device(), {50, 10, 3}, DType::F64);
      nn::init::kaiming_uniform_(x, a);
      std::vector<double> values = x.to_vector();
      const double bound = std::sqrt(6 / ((1 + a * a) * 30));
      const auto [low, high] = std::ranges::minmax(values);
      EXPECT_GE(low, -bound);
      EXPECT_LE(high, bound);
      EXPECT_NEAR(low, -bound, 0.01 * bound);
      EXPECT_NEAR(high, bound, 0.01 * bound);
    }
    EXPECT_THROW(nn::init::kaiming_uniform_(Tensor::empty(world.device(), {5}, DType::F64)), Error);
    co_return;
  });
}

TEST(Init, FillsLeavesOffTheTape) {
  testing::on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = Tensor::empty(world.device(), {4, 3}, DType::F64);
    x.set_requires_grad(true);
    nn::init::normal_(x, 1, 0);
    EXPECT_EQ(x.to_vector(), std::vector<double>(12, 1));
    nn::init::uniform_(x, 2, 2);
    EXPECT_EQ(x.to_vector(), std::vector<double>(12, 2));
    nn::init::kaiming_uniform_(x);
    nn::init::trunc_normal_(x);
    EXPECT_TRUE(x.is_leaf() && x.requires_grad());
    co_return;
  });
}

}  // namespace
}  // namespace coshard
