// Local tensors as kernels see them: strides, reshapes, lines.
#include <gtest/gtest.h>

#include "dtensor/tensor/local.h"
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::counting;
using testing::Values;

TEST(LocalParts, StridesReadAnotherShapeWhereMemoryAllowsIt) {
  EXPECT_EQ(view_strides({4, 6}, {6, 1}, {24}), (Strides{1}));
  EXPECT_EQ(view_strides({4, 6}, {6, 1}, {2, 2, 6}), (Strides{12, 6, 1}));
  EXPECT_EQ(view_strides({4, 3}, {6, 1}, {2, 2, 3}), (Strides{12, 6, 1}));
  EXPECT_EQ(view_strides({4, 3}, {6, 1}, {12}), std::nullopt);
  EXPECT_EQ(view_strides({6, 4}, {1, 6}, {24}), std::nullopt);
  EXPECT_EQ(view_strides({1, 4}, {9, 1}, {4, 1}), (Strides{1, 1}));
}

TEST(LocalParts, AReshapeSharesMemoryOrCopies) {
  alone([](World& world) {
    const Tensor x = counting(world, {2, 3});
    EXPECT_EQ(local_reshape(x, {3, 2}).storage(), x.storage());
    EXPECT_EQ(local_reshape(x, {2, 3}).id(), x.id());
    const Tensor turned = transpose(x, 0, 1);
    const Tensor copy = local_reshape(turned, {6});
    EXPECT_NE(copy.storage(), x.storage());
    EXPECT_EQ(copy.to_vector(), (Values{1, 4, 2, 5, 3, 6}));
    EXPECT_EQ(local_contiguous(x).storage(), x.storage());
    EXPECT_TRUE(local_contiguous(turned).is_contiguous());
    EXPECT_EQ(matrix_rows(counting(world, {2, 3, 4}), 2).local_shape(), (Shape{2, 12}));
  });
}

TEST(LocalParts, OverlapIsOfTheRangesTheyLieIn) {
  alone([](World& world) {
    const Tensor x = counting(world, {4, 6});
    const Tensor turned = transpose(x, 0, 1), top = slice(x, 0, 0, 2), rest = slice(x, 0, 2, 4);
    EXPECT_TRUE(is_same_view(x, view(view(x, {24}), {4, 6})));
    EXPECT_FALSE(is_same_view(x, turned));
    EXPECT_FALSE(is_same_view(x, top));
    EXPECT_FALSE(is_same_view(x, clone(x)));
    EXPECT_TRUE(memory_overlaps(turned, rest));
    EXPECT_TRUE(memory_overlaps(expand(select(rest, 0, 0), {9, 6}), rest));
    EXPECT_TRUE(memory_overlaps(slice(x, 1, 0, 1), slice(x, 1, 1, 2)));  // between each other
    EXPECT_TRUE(memory_overlaps(Tensor::borrow(x.device(), x.data(), {1}, x.dtype()), top));
    EXPECT_FALSE(memory_overlaps(top, rest));
    EXPECT_FALSE(memory_overlaps(rest, top));
    EXPECT_FALSE(memory_overlaps(x, clone(x)));
    EXPECT_FALSE(memory_overlaps(x, slice(x, 0, 1, 1)));
  });
}

TEST(LocalParts, LinesAreWhatLiesBeforeWithinAndBehind) {
  const Lines lines = lines_of({2, 3, 4, 5}, 1, 2);
  EXPECT_EQ(lines.outer, 2);
  EXPECT_EQ(lines.extent, 12);
  EXPECT_EQ(lines.inner, 5);
  EXPECT_EQ(lines_of({7}, 0).extent, 7);
}

TEST(LocalParts, ABroadcastViewHasStepsOfZero) {
  alone([](World& world) {
    const kernels::View view = broadcast_view(counting(world, {3, 1}), {2, 3, 4});
    EXPECT_EQ(view.ndim, 3);
    EXPECT_EQ(view.strides[0], 0);
    EXPECT_EQ(view.strides[1], 1);
    EXPECT_EQ(view.strides[2], 0);
    EXPECT_EQ(view.shape[2], 4);
  });
}

}  // namespace
}  // namespace coshard
