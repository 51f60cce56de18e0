// Comparisons: values, types and layouts.
#include <gtest/gtest.h>

#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/explicit_redistribution.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;
using testing::Values;

TEST(Operators, ComparisonsGiveBoolTensorsOnBothSides) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = counting(world, {3}), two = full(world.device(), {3}, 2, DType::F64);
    EXPECT_EQ((x == two).dtype(), DType::Bool);
    EXPECT_EQ((x == two).to_vector(), (Values{0, 1, 0}));
    EXPECT_EQ((x != two).to_vector(), (Values{1, 0, 1}));
    EXPECT_EQ((x < two).to_vector(), (Values{1, 0, 0}));
    EXPECT_EQ((x <= 2).to_vector(), (Values{1, 1, 0}));
    EXPECT_EQ((x > 2).to_vector(), (Values{0, 0, 1}));
    EXPECT_EQ((2 > x).to_vector(), (Values{1, 0, 0}));
    EXPECT_EQ((2 >= x).to_vector(), (Values{1, 1, 0}));
    EXPECT_EQ((2 < x).to_vector(), (Values{0, 0, 1}));
    EXPECT_EQ((2 <= x).to_vector(), (Values{0, 1, 1}));
    EXPECT_EQ((x >= two).to_vector(), (Values{0, 1, 1}));
    EXPECT_EQ((2 == x).to_vector(), (x == 2).to_vector());
    EXPECT_EQ((2 != x).to_vector(), (x != 2.0).to_vector());
    EXPECT_EQ(((x > 1) & (x < 3)).to_vector(), (Values{0, 1, 0}));
    EXPECT_EQ((~(x > 1) | (x == 3)).to_vector(), (Values{1, 0, 1}));
    EXPECT_THROW(x & x, Error);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
