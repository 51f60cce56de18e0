// Meshes made from sizes, ranks and names.
#include <coshard/dtensor/mesh/device_mesh.h>

#include <gtest/gtest.h>

#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include "tests/dtensor/mesh/mesh_refusals.h"
#include "tests/support/ranks.h"
#include "tests/support/spread.h"

namespace coshard {
namespace {

using testing::mesh_refusal;
using testing::on_ranks;
using testing::says;
using Ranks = std::vector<int>;

TEST(DeviceMesh, RanksLieRowMajor) {
  on_ranks(6, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 3}, {"dp", "tp"});
    EXPECT_EQ(mesh.local_rank(0), world.rank() / 3);
    EXPECT_EQ(mesh.local_rank("tp"), world.rank() % 3);
    EXPECT_EQ(mesh.coordinate(), (Ranks{world.rank() / 3, world.rank() % 3}));
    EXPECT_EQ(mesh.size("tp"), 3);
    EXPECT_EQ(mesh.communicator(0).size(), 2);
    EXPECT_EQ(mesh.communicator(1).size(), 3);
    EXPECT_EQ(mesh.communicator(1).rank(), world.rank() % 3);
    EXPECT_EQ(str_cat(mesh), "(dp=2,tp=3)");
    co_return;
  });
}

TEST(DeviceMesh, ShapesAndNamesThatDoNotFitAreRefused) {
  on_ranks(2, [](World& world) -> Task<void> {
    EXPECT_TRUE(says(mesh_refusal([&] { init_device_mesh(world, {3}, {"tp"}); }), "(3)"));
    mesh_refusal([&] { init_device_mesh(world, {}, {}); });
    EXPECT_TRUE(says(mesh_refusal([&] { init_device_mesh(world, {0}, {}); }), "size 0"));
    EXPECT_TRUE(says(mesh_refusal([&] { init_device_mesh(world, {2}, {"a", "b"}); }), "2 names"));
    EXPECT_TRUE(says(mesh_refusal([&] { init_device_mesh(world, {1, 2}, {"a", "a"}); }), "'a'"));
    mesh_refusal([&] { init_device_mesh(world, {1, 2}, {"a", ""}); });
    mesh_refusal([&] { init_device_mesh(world, {1, 1, 1, 1, 1, 1, 2}); });
    mesh_refusal([&] { init_device_mesh(world, {1 << 30, 1 << 30, 1 << 30}); });
    EXPECT_TRUE(says(mesh_refusal([&] { DeviceMesh::from_ranks(world, {0, 2}, {2}); }), "rank 2"));
    EXPECT_TRUE(says(mesh_refusal([&] { DeviceMesh::from_ranks(world, {1, 1}, {2}); }), "twice"));
    EXPECT_TRUE(says(mesh_refusal([&] { DeviceMesh::from_ranks(world, {1}, {2}); }),
                     "needs 2 ranks, got 1"));
    co_return;
  });
}

TEST(FromRanks, TakesAnyRanksInAnyOrder) {
  on_ranks(5, [](World& world) -> Task<void> {
    const DeviceMesh mesh = DeviceMesh::from_ranks(world, {4, 2, 0, 3}, {2, 2}, {"dp", "tp"});
    const Ranks at{2, -1, 1, 3, 0};
    const int place = at[static_cast<std::size_t>(world.rank())];
    EXPECT_EQ(mesh.contains_this_rank(), place >= 0);
    if (place < 0) co_return;
    EXPECT_EQ(mesh.coordinate(), (Ranks{place / 2, place % 2}));
    EXPECT_EQ(mesh.communicator(0).rank(), place / 2);
    EXPECT_EQ(mesh.communicator(1).rank(), place % 2);
    EXPECT_EQ(mesh["tp"].ranks(), place < 2 ? (Ranks{4, 2}) : (Ranks{0, 3}));
    const DTensor x =
        distribute_tensor(testing::counting(world, {4}), mesh, Layout(Shard(0), Shard(0)));
    EXPECT_EQ(x.to_vector(), (std::vector<double>{place + 1.0}));
    EXPECT_EQ(full_tensor(x).to_vector(), (std::vector<double>{1, 2, 3, 4}));
    co_return;
  });
}

TEST(FromRanks, ARankOutsideHasNoPlaceAndNoCommunicator) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = DeviceMesh::from_ranks(world, {0, 2}, {1, 2}, {"dp", "tp"});
    EXPECT_EQ(mesh.ranks(), (Ranks{0, 2}));
    EXPECT_EQ(mesh.size("tp"), 2);
    if (world.rank() != 1) co_return;
    EXPECT_FALSE(mesh.contains_this_rank());
    EXPECT_TRUE(mesh.coordinate().empty());
    EXPECT_FALSE(mesh["tp"].contains_this_rank());
    EXPECT_FALSE(mesh.flatten().contains_this_rank());
    EXPECT_EQ(world.groups(), 0U);
    EXPECT_TRUE(says(mesh_refusal([&] { mesh.communicator(1); }), "rank 1 is not in the mesh"));
    EXPECT_TRUE(says(mesh_refusal([&] { mesh.local_rank(0); }), "rank 1 is not in the mesh"));
  });
}

// As `mpirun --map-by node` places them.
TEST(MeshOverHosts, InnerDimensionsStayWithinAHostThoughWorldRanksAlternate) {
  if (testing::test_device() != DeviceKind::Cpu) GTEST_SKIP() << "there are no processes";
  const testing::ClaimedHosts hosts({0, 1, 0, 1});
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    EXPECT_EQ(mesh.ranks(), (Ranks{0, 2, 1, 3}));
    EXPECT_EQ(mesh["tp"].ranks(), world.rank() % 2 == 0 ? (Ranks{0, 2}) : (Ranks{1, 3}));
    EXPECT_EQ(mesh["dp"].ranks(), world.rank() < 2 ? (Ranks{0, 1}) : (Ranks{2, 3}));
    EXPECT_EQ(mesh.coordinate(), (Ranks{world.rank() % 2, world.rank() / 2}));
    const DTensor x = distribute_tensor(arange(8), mesh, Layout(Replicate(), Shard(0)));
    EXPECT_EQ(x.to_local().to_vector()[0], world.rank() / 2 * 4);
    const Redistribution whole = x.redistribute(Replicate(), Replicate());
    const DTensor full = co_await whole;
    EXPECT_EQ(full.to_local().to_vector(), (std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7}));
    const DeviceMesh literal = DeviceMesh::from_ranks(world, {0, 1, 2, 3}, {2, 2}, {"dp", "tp"});
    EXPECT_EQ(literal.ranks(), (Ranks{0, 1, 2, 3}));
    EXPECT_FALSE(mesh == literal);
  });
}

TEST(MeshOverHosts, OneDimensionIsInTheOrderOfTheWorld) {
  if (testing::test_device() != DeviceKind::Cpu) GTEST_SKIP() << "there are no processes";
  const testing::ClaimedHosts hosts({0, 1, 0, 1});
  on_ranks(4, [](World& world) -> Task<void> {
    EXPECT_EQ(init_device_mesh(world, {4}).ranks(), (Ranks{0, 1, 2, 3}));
    EXPECT_EQ(init_device_mesh(world, {1, 4}).ranks(), (Ranks{0, 1, 2, 3}));
    co_return;
  });
}

TEST(MeshOverHosts, RanksInTheOrderOfHostsStayAsTheyAre) {
  if (testing::test_device() != DeviceKind::Cpu) GTEST_SKIP() << "there are no processes";
  const testing::ClaimedHosts hosts({0, 0, 0, 0, 1, 1, 1, 1});
  ::testing::internal::CaptureStderr();
  on_ranks(8, [](World& world) -> Task<void> {
    const std::vector<Ranks> shapes{{2, 4}, {4, 2}, {2, 2, 2}};
    for (const Ranks& shape : shapes)
      EXPECT_EQ(init_device_mesh(world, shape).ranks(), (Ranks{0, 1, 2, 3, 4, 5, 6, 7}));
    co_return;
  });
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(MeshOverHosts, AnInnerDimensionThatNoHostCanHoldIsToldOfOnce) {
  if (testing::test_device() != DeviceKind::Cpu) GTEST_SKIP() << "there are no processes";
  const testing::ClaimedHosts hosts({0, 1, 2, 0, 1, 2, 3, 3});
  ::testing::internal::CaptureStderr();
  on_ranks(8, [](World& world) -> Task<void> {
    for (int i = 0; i < 3; ++i) {
      const DeviceMesh mesh = init_device_mesh(world, {2, 4, 1}, {"dp", "tp", "one"});
      EXPECT_EQ(mesh.ranks(), (Ranks{0, 3, 1, 4, 2, 5, 6, 7}));
    }
    co_return;
  });
  EXPECT_EQ(
      ::testing::internal::GetCapturedStderr(),
      "warning: init_device_mesh: dimension tp=4 of (dp=2,tp=4,one=1) spans hosts, which have "
      "2 of the ranks each\n");
}

}  // namespace
}  // namespace coshard
