// The words that rules are written in.
#include <gtest/gtest.h>

#include <coshard/dtensor/ops/axes.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::counting;
using testing::refusal;
using testing::Values;

TEST(Letters, OnePerDimensionAndADotWhereAnInputIsStretched) {
  EXPECT_EQ(axes(3), "abc");
  EXPECT_EQ(axes(2, 'x'), "xy");
  EXPECT_EQ(axes(0), "");
  EXPECT_EQ(broadcast_axes({1, 4}, {3, 2, 4}), ".c");
  EXPECT_EQ(broadcast_axes({}, {3}), "");
}

TEST(Letters, AnElementwiseRuleBroadcastsAndLeavesOutWhatIsAbsent) {
  const std::vector<TensorInfo> in{input({2, 1}), absent(), input({3})};
  const Rule rule = elementwise_rule(in, {});
  EXPECT_EQ(rule.in, (std::vector<std::string>{"a.", "", "b"}));
  EXPECT_EQ(rule.out, std::vector<std::string>{"ab"});
  EXPECT_TRUE(rule.strided);
}

TEST(Letters, RefusalsNameTheOperatorAndTheTypes) {
  alone([](World& world) {
    const TensorInfo ints = input({2}, DType::I64);
    EXPECT_EQ(refusal([&] { require_floating("mean", ints); }).find("mean: i64[2]"), 0U);
    const std::string two = refusal([&] { require_same_dtype("cat", ints, input({3})); });
    EXPECT_EQ(two.find("cat: "), 0U);
    EXPECT_NE(two.find("f64[3]"), std::string::npos);
    const Tensor x = counting(world, {2, 3});
    EXPECT_EQ(normalized_dims("norm", x, {3}), 1);
    EXPECT_EQ(normalized_dims("norm", x, {2, 3}), 2);
    EXPECT_EQ(refusal([&] { normalized_dims("norm", x, {2}); }).find("norm: "), 0U);
    EXPECT_NE(refusal([&] { normalized_dims("norm", x, {}); }), "accepted");
  });
}

TEST(Letters, SumToTakesTheStretchedDimensionsBack) {
  alone([](World& world) {
    const Tensor x = counting(world, {2, 3});
    EXPECT_EQ(sum_to(x, {3}).to_vector(), (Values{5, 7, 9}));
    EXPECT_EQ(sum_to(x, {2, 1}).to_vector(), (Values{6, 15}));
    EXPECT_EQ(sum_to(x, {2, 1}).shape(), (Shape{2, 1}));
    EXPECT_EQ(sum_to(x, {2, 3}).to_vector(), x.to_vector());
  });
}

}  // namespace
}  // namespace coshard
