// Blocks of a tensor that travel in a buffer.
#include <gtest/gtest.h>

#include "dtensor/redistribute/blocks.h"
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::counting;
using testing::Values;
using testing::values;

TEST(BlocksOf, EachRangeOfEachDimensionIsABlock) {
  const Region part{{{0, 2}, {4, 5}}, {{1, 3}}};
  EXPECT_EQ(numel(part), 6);
  EXPECT_EQ(shape_of(part), (Shape{3, 2}));
  const Region whole{{{0, 6}}, {{0, 4}}};
  const StridedBlocks blocks = blocks_of(part, whole, part, 10);
  ASSERT_EQ(blocks.size(), 2U);
  EXPECT_EQ(blocks[0].size, (Shape{2, 2}));
  EXPECT_EQ(blocks[0].begin, (Shape{0, 1}));
  EXPECT_EQ(blocks[0].offset, 10);
  EXPECT_EQ(blocks[1].size, (Shape{1, 2}));
  EXPECT_EQ(blocks[1].begin, (Shape{4, 1}));
  EXPECT_EQ(blocks[1].offset, 14);
  EXPECT_EQ(blocks[1].strides, (Strides{2, 1}));
  EXPECT_TRUE(blocks_of({{{0, 2}}, {}}, whole, whole).empty());
}

TEST(BlocksOf, ARankHoldsWhatItsLayoutCutsAndTwoRegionsMeet) {
  ShardMap shard_map({2}, {4, 6});
  const Region rows = region_of(shard_map, Layout(Shard(0)), 1);
  const Region columns = region_of(shard_map, Layout(Shard(1)), 0);
  EXPECT_EQ(shape_of(rows), (Shape{2, 6}));
  EXPECT_EQ(shape_of(intersect(rows, columns)), (Shape{2, 3}));
  EXPECT_EQ(intersect(rows, columns)[0][0].begin, 2);
}

TEST(BlocksOf, CopiesOutAndInLeaveTheRestAlone) {
  alone([](World& world) {
    const Tensor x = counting(world, {3, 4});
    const Tensor buffer = values(world, {5}, Values(5, -1));
    const StridedBlocks blocks{{{2, 2}, {1, 1}, 1, {2, 1}}};
    copy_out(x, buffer, blocks);
    EXPECT_EQ(buffer.to_vector(), (Values{-1, 6, 7, 10, 11}));
    const Tensor y = values(world, {3, 4}, Values(12, 0));
    copy_in(buffer, transpose(transpose(y, 0, 1), 0, 1), blocks);
    EXPECT_EQ(y.to_vector(), (Values{0, 0, 0, 0, 0, 6, 7, 0, 0, 10, 11, 0}));
  });
}

}  // namespace
}  // namespace coshard
