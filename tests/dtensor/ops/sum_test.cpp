// sum and mean.
#include <gtest/gtest.h>

#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;
using testing::Values;

TEST(Mean, AveragesAllOrOneDimension) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = counting(world, {2, 3});
    EXPECT_DOUBLE_EQ(mean(x).item(), 3.5);
    EXPECT_EQ(mean(x, 0).to_vector(), (Values{2.5, 3.5, 4.5}));
    EXPECT_EQ(sum(x, -1, true).shape(), (Shape{2, 1}));
    co_return;
  });
}

}  // namespace
}  // namespace coshard
