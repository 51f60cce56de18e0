#include <coshard/dtensor/mesh/spec.h>

#include <gtest/gtest.h>

#include "tests/support/ranks.h"

namespace coshard {
namespace {

TEST(Spec, ChunksFollowTorchChunk) {
  // size 5 on 4: 2, 2, 1, 0; size 0 on 2: 0, 0
  EXPECT_EQ(chunk_of(5, 4, 0).size, 2);
  EXPECT_EQ(chunk_of(5, 4, 1).size, 2);
  EXPECT_EQ(chunk_of(5, 4, 2).size, 1);
  EXPECT_EQ(chunk_of(5, 4, 3).size, 0);
  EXPECT_EQ(chunk_of(5, 4, 3).offset, 5);
  EXPECT_EQ(chunk_of(0, 2, 1).size, 0);
}

TEST(Spec, ShardsOfUnitsHoldWholeUnits) {
  // 9 units of 4 on 2: 5 and 4; 10 positions in units of 4 on 2: 8 and 2
  EXPECT_EQ(chunk_of(36, 2, 0, 4).size, 20);
  EXPECT_EQ(chunk_of(36, 2, 1, 4).offset, 20);
  EXPECT_EQ(chunk_of(10, 2, 0, 4).size, 8);
  EXPECT_EQ(chunk_of(10, 2, 1, 4).size, 2);
  // _S(0, 2, 2): each of the chunks [0, 6) and [6, 12) in units of 2; rank 1 has 4, 5, 10, 11
  const auto second = ranges_of(Layout(StridedShard(0, 2, 2)), {2}, {1}, 0, 12);
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(second[0].begin, 4);
  EXPECT_EQ(second[1].begin, 10);
  EXPECT_EQ(count_of(second), 4);
}

TEST(Spec, StridedShardsJoinThePiecesOfEachChunk) {
  // _S(0, 2) of five rows on 2 ranks: chunks [0,1,2] and [3,4]; rank 0 has 0, 1, 3
  const Layout layout(StridedShard(0, 2));
  const auto first = ranges_of(layout, {2}, {0}, 0, 5);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].begin, 0);
  EXPECT_EQ(first[0].end, 2);
  EXPECT_EQ(first[1].begin, 3);
  EXPECT_EQ(first[1].end, 4);
}

TEST(Spec, TwoMeshDimensionsCutOneAfterTheOther) {
  testing::on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const auto spec = make_spec(mesh, Layout(Shard(0), Shard(0)), {10, 5});
    const std::int64_t rows[] = {3, 2, 3, 2};
    const std::int64_t starts[] = {0, 3, 5, 8};
    EXPECT_EQ(spec->local_shape, (Shape{rows[world.rank()], 5}));
    EXPECT_EQ(spec->offset, (Shape{starts[world.rank()], 0}));
    co_return;
  });
}

TEST(Spec, EqualSpecsAreOneObject) {
  testing::on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    EXPECT_EQ(make_spec(mesh, Shard(-1), {4, 6}), make_spec(mesh, Shard(1), {4, 6}));
    EXPECT_NE(make_spec(mesh, Shard(0), {4, 6}), make_spec(mesh, Shard(1), {4, 6}));
    co_return;
  });
}

TEST(Spec, ALayoutWithMoreEntriesThanTheMeshIsRefused) {
  testing::on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    try {
      make_spec(mesh, Layout(Shard(0), Replicate()), {4, 6});
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "layout S(0)R has 2 entries, the mesh tp=2 has 1 dimensions");
    }
    co_return;
  });
}

}  // namespace
}  // namespace coshard
