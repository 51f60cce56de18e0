#include <coshard/profiling/visualize_sharding.h>

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include <coshard/dtensor/distribute/random.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using Holders = std::vector<std::vector<int>>;

TEST(VisualizeSharding, TwoShardsCutATensorIntoCells) {
  EXPECT_EQ(visualize_sharding({2, 2}, Layout(Shard(0), Shard(-1)), {8, 6}),
            "[8,6] S(0)S(1) on (2,2)\n"
            "       0:3   3:6\n"
            "0:4      0     1\n"
            "4:8      2     3\n");
}

TEST(VisualizeSharding, ColumnsAreAsWideAsTheirRanges) {
  EXPECT_EQ(visualize_sharding({2}, Layout(Shard(1)), {8, 2000}),
            "[8,2000] S(1) on (2)\n"
            "         0:1000  1000:2000\n"
            "0:8           0          1\n");
}

TEST(VisualizeSharding, ReplicasShareACellAndPartialsAreNoted) {
  const Sharding replicas = sharding_of({2, 2}, Layout(Replicate(), Shard(0)), {4});
  EXPECT_EQ(replicas.grids.at(0).holders, (Holders{{0, 2}, {1, 3}}));
  EXPECT_EQ(replicas.column_dim, -1);
  EXPECT_EQ(replicas.note, "");
  const Sharding terms = sharding_of({2}, Partial(), {4, 4});
  EXPECT_EQ(terms.grids.at(0).holders, (Holders{{0, 1}}));
  EXPECT_NE(terms.note.find("P(sum) along mesh dimension 0"), std::string::npos);
}

TEST(VisualizeSharding, UnevenEmptyAndStridedPartsAreCutWhereTheyEnd) {
  const Sharding uneven = sharding_of({4}, Shard(0), {5, 2});
  EXPECT_EQ(uneven.grids.at(0).holders, (Holders{{0}, {1}, {2}}));  // rank 3 has nothing
  EXPECT_EQ(uneven.grids.at(0).rows.at(2).end, 5);
  const Sharding strided = sharding_of({2}, StridedShard(0, 2), {5});
  EXPECT_EQ(strided.grids.at(0).holders, (Holders{{0}, {1}, {0}, {1}}));
  const Sharding nothing = sharding_of({2}, Shard(0), {0, 3});
  EXPECT_EQ(nothing.grids.at(0).holders, (Holders{{}}));
}

TEST(VisualizeSharding, RowsAndColumnsAreTheDimensionsThatAreCut) {
  const Sharding inner = sharding_of({2, 2}, Layout(Shard(1), Shard(2)), {3, 4, 4});
  EXPECT_EQ(inner.row_dim, 1);
  EXPECT_EQ(inner.column_dim, 2);
  EXPECT_EQ(inner.grids.size(), 1U);
  const Sharding last = sharding_of({2}, Shard(1), {3, 4});
  EXPECT_EQ(last.row_dim, 0);
  EXPECT_EQ(last.grids.at(0).rows.size(), 1U);
  EXPECT_EQ(last.grids.at(0).columns.size(), 2U);
  const Sharding three = sharding_of({2, 2, 2}, Layout(Shard(0), Shard(1), Shard(2)), {4, 4, 4});
  ASSERT_EQ(three.grids.size(), 2U);
  EXPECT_EQ(three.grids[1].title, "dim 2: 2:4");
  EXPECT_EQ(three.grids[1].holders, (Holders{{1}, {3}, {5}, {7}}));
}

TEST(VisualizeSharding, AScalarIsOneCell) {
  const Sharding scalar = sharding_of({2}, Replicate(), {});
  EXPECT_EQ(scalar.row_dim, -1);
  EXPECT_EQ(scalar.grids.at(0).holders, (Holders{{0, 1}}));
}

TEST(VisualizeSharding, OfATensorNamesWorldRanks) {
  testing::on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = DeviceMesh::from_ranks(world, {2, 0}, {2}, {"tp"});
    const Sharding sharding = sharding_of(zeros(mesh, Shard(0), {4, 2}));
    EXPECT_EQ(sharding.grids.at(0).holders, (Holders{{2}, {0}}));
    EXPECT_EQ(sharding.title, "f32[4,2] S(0) on tp=2");
    EXPECT_THROW(sharding_of(zeros(world.device(), {2})), Error);
    co_return;
  });
}

TEST(VisualizeSharding, RefusesALayoutThatDoesNotFit) {
  EXPECT_THROW(sharding_of({2}, Layout(Shard(0), Shard(0)), {4}), Error);
  EXPECT_THROW(sharding_of({2}, Shard(1), {4}), Error);
}

}  // namespace
}  // namespace coshard
