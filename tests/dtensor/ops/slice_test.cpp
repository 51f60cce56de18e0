// Slices and pieces.
#include <gtest/gtest.h>

#include <cstdint>

#include <coshard/dtensor/distribute/factories.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::counting;
using testing::on_ranks;
using testing::refusal;
using testing::Values;

TEST(Slice, CountsNegativeIndicesFromTheEndAndSplitKeepsTheRest) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = counting(world, {5});
    EXPECT_EQ(slice(x, 0, -3, -1).to_vector(), (Values{3, 4}));
    EXPECT_EQ(slice(x, 0, 3, 7).to_vector(), (Values{4, 5}));
    EXPECT_THROW(narrow(x, 0, 3, 4), Error);
    const auto pieces = split(x, 2, 0);
    EXPECT_EQ(pieces.size(), 3u);
    EXPECT_EQ(pieces.back().to_vector(), (Values{5}));
    EXPECT_EQ(cat(pieces, 0).to_vector(), x.to_vector());
    co_return;
  });
}

TEST(Edges, StartsLengthsAndStepsAtTheEndsOfTheirType) {
  alone([](World& world) {
    constexpr std::int64_t kMost = INT64_MAX, kLeast = INT64_MIN;
    const Tensor x = counting(world, {3, 4});
    EXPECT_TRUE(refusal([&] {
                  narrow(x, 0, 1, kMost);
                }).starts_with("narrow: start 1, length 9223372036854775807"));
    EXPECT_TRUE(refusal([&] {
                  narrow(x, 0, kMost, 1);
                }).starts_with("narrow: start 9223372036854775807, length 1"));
    EXPECT_EQ(slice(x, 0, kLeast, kMost, kMost).to_vector(), (std::vector<double>{1, 2, 3, 4}));
    EXPECT_EQ(slice(x, 1, 2, kMost, kMost - 1).to_vector(), (std::vector<double>{3, 7, 11}));
    EXPECT_EQ(diagonal(x, kLeast).shape(), (Shape{0}));
    EXPECT_EQ(diagonal(x, kMost).shape(), (Shape{0}));
    EXPECT_EQ(roll(x, kLeast, 0).to_vector(), roll(x, -2, 0).to_vector());
    EXPECT_EQ(roll(x, kMost, 1).to_vector(), roll(x, 3, 1).to_vector());
    EXPECT_TRUE(refusal([&] { linspace(world, 0, 1, kMost); }).starts_with("linspace: shape"));
    EXPECT_EQ(refusal([&] { linspace(world, 0, 1, -1); }),
              "linspace: negative size -1 in shape [-1]");
  });
}

}  // namespace
}  // namespace coshard
