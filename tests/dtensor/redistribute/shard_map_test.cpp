// Which positions ranks hold, counted.
#include <gtest/gtest.h>

#include <algorithm>

#include "dtensor/redistribute/shard_map.h"

namespace coshard {
namespace {

bool same(const Ranges& a, const Ranges& b) {
  return std::ranges::equal(
      a, b, [](const Range& x, const Range& y) { return x.begin == y.begin && x.end == y.end; });
}

TEST(HoldingsOf, RangesMeetWhereBothHavePositions) {
  const Ranges a{{0, 4}, {6, 10}}, b{{2, 7}, {9, 12}};
  EXPECT_TRUE(same(intersect(a, b), {{2, 4}, {6, 7}, {9, 10}}));
  EXPECT_EQ(common(a, b), 4);
  EXPECT_EQ(common(a, {}), 0);
  EXPECT_TRUE(intersect({{0, 2}}, {{2, 4}}).empty());
  EXPECT_EQ(position_in(a, 3), 3);
  EXPECT_EQ(position_in(a, 6), 4);
  EXPECT_EQ(position_in(a, 9), 7);
}

TEST(HoldingsOf, UnevenAndStridedCutsAreThoseOfTorchChunk) {
  ShardMap shard_map({3}, {8, 2});
  const auto& rows = shard_map.along(Layout(Shard(0)), 0);
  EXPECT_TRUE(same(rows[0], {{0, 3}}));
  EXPECT_TRUE(same(rows[2], {{6, 8}}));
  EXPECT_EQ(&shard_map.along(Layout(Shard(0)), 0), &rows);
  EXPECT_EQ(shard_map.held(Layout(Shard(0))), (std::vector<std::int64_t>{6, 6, 4}));
  EXPECT_EQ(shard_map.held(Layout(Shard(0)), Layout(Shard(1))),
            (std::vector<std::int64_t>{3, 3, 0}));
  ShardMap two({2}, {8});
  EXPECT_TRUE(same(two.along(Layout(StridedShard(0, 2)), 0)[1], {{2, 4}, {6, 8}}));
}

TEST(HoldingsOf, GroupsAreTheRanksThatDifferInTheirDimensionsAlone) {
  ShardMap shard_map({2, 3}, {4});
  EXPECT_EQ(shard_map.ranks(), 6);
  EXPECT_EQ(shard_map.group(4, 0b01), (std::vector<int>{1, 4}));
  EXPECT_EQ(shard_map.group(4, 0b10), (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(shard_map.size(0b11), 6);
  EXPECT_EQ(cutting(Layout(Shard(1), Shard(0)), 0), 0b10U);
}

}  // namespace
}  // namespace coshard
