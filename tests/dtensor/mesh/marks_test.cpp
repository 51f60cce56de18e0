#include "dtensor/mesh/marks.h"

#include <gtest/gtest.h>

#include <coshard/dtensor/distribute/factories.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::on_ranks;

TEST(MeshMarks, OfOneRankAreNone) {
  on_ranks(1, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {1}, {"tp"});
    EXPECT_EQ(mark_of(mesh, 0), 0U);
    EXPECT_EQ(ones(mesh, Shard(0), {4}).to_local().marks(), 0U);
    co_return;
  });
}

TEST(MeshMarks, AreOneForAllMeshesOfTheSameRanks) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const DeviceMesh again = init_device_mesh(world, {2, 2}, {"a", "b"});
    EXPECT_NE(mark_of(mesh, 0), mark_of(mesh, 1));
    EXPECT_EQ(mark_of(mesh["tp"], 0), mark_of(mesh, 1));
    EXPECT_EQ(mark_of(again, 1), mark_of(mesh, 1));
    EXPECT_EQ(names_of(mark_of(mesh, 1)), "'tp'");
    EXPECT_EQ(marks_within(mark_of(mesh, 1)), mark_of(mesh, 1));
    EXPECT_EQ(ones(mesh, {Shard(0), Replicate()}, {4}).to_local().marks(), mark_of(mesh, 0));
    co_return;
  });
}

}  // namespace
}  // namespace coshard
