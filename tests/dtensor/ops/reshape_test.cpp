// view, reshape, flatten and unflatten: what shares memory.
#include <gtest/gtest.h>

#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::counting;

TEST(Edges, FlattenAndUnflattenOfOneDimension) {
  alone([](World& world) {
    const Tensor x = counting(world, {3});
    EXPECT_EQ(flatten(x).shape(), (Shape{3}));
    EXPECT_EQ(flatten(x).to_vector(), x.to_vector());
    EXPECT_EQ(flatten(counting(world, {2, 3}), 1, 1).shape(), (Shape{2, 3}));
    EXPECT_EQ(flatten(counting(world, {2, 3}), 0, 0).shape(), (Shape{2, 3}));
    EXPECT_EQ(flatten(counting(world, {2, 3, 4}), 0, 1).shape(), (Shape{6, 4}));
    EXPECT_EQ(unflatten(x, 0, Shape{3}).shape(), (Shape{3}));
    EXPECT_EQ(unflatten(x, 0, Shape{-1, 1}).shape(), (Shape{3, 1}));
  });
}

// A view shares memory wherever strides can say it, also of what is not contiguous.
TEST(Edges, AViewSharesMemoryWhereStridesCanSayIt) {
  alone([](World& world) {
    const Tensor x = counting(world, {4, 6});
    const Tensor rows = slice(x, 1, 0, 3);
    const Tensor turned = transpose(x, 0, 1);
    for (const Tensor& y : {view(x, {4, 6}), view(x, {24}), view(rows, {2, 2, 3}),
                            view(rows, {4, 3}), view(turned, {2, 3, 4}), view(turned, {6, 1, 4})})
      EXPECT_EQ(y.storage()->buffer, x.storage()->buffer) << y;
    EXPECT_NE(reshape(turned, {24}).storage()->buffer, x.storage()->buffer);
  });
}

TEST(Edges, ANegativeSizeOtherThanMinusOneIsRefused) {
  alone([](World& world) {
    const Tensor x = counting(world, {4, 3});
    using testing::refusal;
    EXPECT_NE(refusal([&] { reshape(x, {-2, -6}); }).find("size -2 in [-2,-6]"), std::string::npos);
    EXPECT_NE(refusal([&] { view(x, {-3, -4}); }).find("size -3 in [-3,-4]"), std::string::npos);
    EXPECT_NE(refusal([&] {
                unflatten(x, 0, Shape{-2, -2});
              }).find("size -2 in [-2,-2]"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace coshard
