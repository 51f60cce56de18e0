#include "dtensor/device_mesh.h"

#include <gtest/gtest.h>

#include "tests/support/ranks.h"

namespace coshard {
namespace {

TEST(DeviceMesh, RanksLieRowMajor) {
  testing::on_ranks(6, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 3}, {"dp", "tp"});
    EXPECT_EQ(mesh.local_rank(0), world.rank() / 3);
    EXPECT_EQ(mesh.local_rank(1), world.rank() % 3);
    EXPECT_EQ(mesh.communicator(0).size(), 2);
    EXPECT_EQ(mesh.communicator(1).size(), 3);
    EXPECT_EQ(mesh.communicator(1).rank(), world.rank() % 3);
    EXPECT_EQ(cat(mesh), "(dp=2,tp=3)");
    co_return;
  });
}

TEST(DeviceMesh, EqualMeshesCompareEqualAndShareTheirCommunicators) {
  testing::on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh a = init_device_mesh(world, {2}, {"tp"});
    const DeviceMesh b = init_device_mesh(world, {2}, {"tp"});
    const DeviceMesh c = init_device_mesh(world, {1, 2}, {"dp", "tp"});
    EXPECT_TRUE(a == b);
    EXPECT_FALSE(a == c);
    EXPECT_EQ(&a.communicator(0), &b.communicator(0));
    co_return;
  });
}

TEST(DeviceMesh, ShapesAndNamesThatDoNotFitAreRefused) {
  testing::on_ranks(2, [](World& world) -> Task<void> {
    EXPECT_THROW(init_device_mesh(world, {3}, {"tp"}), Error);
    EXPECT_THROW(init_device_mesh(world, {}, {}), Error);
    EXPECT_THROW(init_device_mesh(world, {0}, {}), Error);
    EXPECT_THROW(init_device_mesh(world, {2}, {"a", "b"}), Error);
    EXPECT_THROW(init_device_mesh(world, {1, 2}, {"a", "a"}), Error);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
