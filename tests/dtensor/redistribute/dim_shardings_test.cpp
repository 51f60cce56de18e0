// Cuts of one dimension in closed form: even ones by digits, others by pieces.
#include <gtest/gtest.h>

#include "dtensor/redistribute/dim_shardings.h"

namespace coshard {
namespace {

TEST(DimShardingsOf, AGridGivesEachCoordinateBitsOfItsOwn) {
  const MeshGrid grid({2, 3});
  EXPECT_EQ(grid.ranks, 6);
  EXPECT_EQ(grid.codes, 8U);
  EXPECT_EQ(grid.size_of(0b11), 6);
  EXPECT_EQ(grid.size_of(0b10), 3);
  EXPECT_EQ(grid.bits_of(0b01), 0b100U);
  EXPECT_EQ(grid.bits_of(0b10), 0b011U);
}

TEST(DimShardingsOf, EvenCutsAreDigitsAndUnevenOnesPieces) {
  const MeshGrid grid({4});
  DimShardings even(grid, 12), uneven(grid, 10);
  const ShardingKey shard{1};
  const DimSharding& three = even[even.id_of(shard)];
  EXPECT_TRUE(three.even);
  EXPECT_EQ(three.most, 3);
  EXPECT_EQ(three.dims, 0b1U);
  const DimSharding& chunks = uneven[uneven.id_of(shard)];
  EXPECT_FALSE(chunks.even);
  EXPECT_EQ(chunks.most, 3);
  EXPECT_EQ(even.id_of(shard), even.id_of(shard));
  EXPECT_NE(even.id_of(shard), even.id_of({}));
}

TEST(DimShardingsOf, PairsTellWhatRanksHaveInBoth) {
  const MeshGrid grid({2, 2});
  DimShardings shardings(grid, 8);
  const int whole = shardings.id_of({}), outer = shardings.id_of({1, 0}),
            inner = shardings.id_of({0, 1}), both = shardings.id_of({1, 1});
  EXPECT_EQ(shardings.pair(outer, inner).common, 0);  // some rank has nothing in both
  EXPECT_EQ(shardings.pair(outer, both).common, 2);
  EXPECT_EQ(shardings.pair(outer, both).needed, 0U);
  EXPECT_EQ(shardings.pair(both, outer).needed, 0b10U);
  EXPECT_EQ(shardings.by_rank(outer, inner), (std::vector<double>{4, 0, 0, 4}));
  EXPECT_TRUE(shardings.gathers(both, outer, 0b10));
  EXPECT_FALSE(shardings.gathers(both, outer, 0b01));
  EXPECT_TRUE(shardings.gathers(outer, whole, 0b01));
  EXPECT_TRUE(shardings.ascends(outer, 0b01));
  EXPECT_FALSE(shardings.ascends(shardings.id_of({3, 0}), 0b01));  // StridedShard of 2
}

// 5 positions as _S(0,3)S(0): ranks have {0, 2}, {4}, {1}, {3}. Those of the last two ranks lie apart
// from those of the first two.
TEST(DimShardingsOf, AscendIfTheyDoInEachGroup) {
  const MeshGrid grid({2, 2});
  DimShardings shardings(grid, 5);
  const int strided = shardings.id_of({1 + 3, 1});
  EXPECT_TRUE(shardings.ascends(strided, 0b10));
  EXPECT_FALSE(shardings.ascends(strided, 0b01));
  // Those of 57 positions ascend in the first group over dimensions 0 and 3 alone.
  const MeshGrid larger({2, 2, 3, 2});
  DimShardings uneven(larger, 57);
  EXPECT_FALSE(uneven.ascends(uneven.id_of({1 + 6, 1, 1, 1}), 0b1001));
}

TEST(DimShardingsOf, UnitsShardAsTheyShouldWhereAllIsEven) {
  const MeshGrid grid({2});
  DimShardings shardings(grid, 12);
  const auto in_units = [](int unit) { return sharding_code(StridedShard(0, 1, unit)); };
  const int plain = shardings.id_of({1});
  EXPECT_EQ(split_of(in_units(3)), 1);
  EXPECT_EQ(unit_of(in_units(3)), 3);
  EXPECT_EQ(unit_of(1), 1);
  EXPECT_TRUE(shardings[shardings.id_of({in_units(3)})].even);
  EXPECT_FALSE(shardings[shardings.id_of({in_units(4)})].even);
  EXPECT_EQ(shardings[shardings.id_of({in_units(4)})].most, 8);
  EXPECT_EQ(shardings.pair(plain, shardings.id_of({in_units(2)})).needed, 0U);
  EXPECT_EQ(shardings.pair(plain, shardings.id_of({in_units(4)})).needed, 1U);
}

}  // namespace
}  // namespace coshard
