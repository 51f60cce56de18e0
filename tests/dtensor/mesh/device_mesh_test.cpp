#include <coshard/dtensor/mesh/device_mesh.h>

#include <gtest/gtest.h>

#include <numeric>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "tests/dtensor/mesh/mesh_refusals.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::CountingObserver;
using testing::mesh_refusal;
using testing::on_ranks;
using testing::says;
using Ranks = std::vector<int>;

TEST(DeviceMesh, EqualMeshesCompareEqualAndShareTheirCommunicators) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh a = init_device_mesh(world, {2}, {"tp"});
    const DeviceMesh b = init_device_mesh(world, {2}, {"tp"});
    const DeviceMesh c = init_device_mesh(world, {1, 2}, {"dp", "tp"});
    const DeviceMesh unnamed = init_device_mesh(world, {2});
    EXPECT_TRUE(a == b);
    EXPECT_FALSE(a == c);
    EXPECT_FALSE(a == unnamed);
    EXPECT_TRUE(a == c["tp"]);
    EXPECT_FALSE(a == DeviceMesh::from_ranks(world, {1, 0}, {2}, {"tp"}));
    EXPECT_EQ(&a.communicator(0), &b.communicator(0));
    EXPECT_EQ(&a.communicator(0), &c.communicator(1));
    co_return;
  });
}

// PyTorch's own examples of DeviceMesh slicing on (pp,dp,tp) = (2,2,2).
TEST(SubMesh, HoldsTheRanksThatShareTheOtherCoordinates) {
  on_ranks(8, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2, 2}, {"pp", "dp", "tp"});
    const int r = world.rank();
    EXPECT_EQ(mesh["tp"].ranks(), (Ranks{r & ~1, r | 1}));
    EXPECT_EQ(mesh["dp"].ranks(), (Ranks{r & ~2, r | 2}));
    EXPECT_EQ(mesh["pp"].ranks(), (Ranks{r & ~4, r | 4}));
    const DeviceMesh apart = mesh.submesh({"pp", "tp"});
    EXPECT_EQ(apart.ranks(), r & 2 ? (Ranks{2, 3, 6, 7}) : (Ranks{0, 1, 4, 5}));
    EXPECT_EQ(apart.coordinate(), (Ranks{r >> 2, r & 1}));
    EXPECT_EQ(apart["tp"].ranks(), mesh["tp"].ranks());
    EXPECT_EQ(&apart["tp"].communicator(0), &mesh.communicator(2));
    co_return;
  });
}

TEST(SubMesh, IsJoinedWithAnotherInTheOrderOfTheMesh) {
  on_ranks(8, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2, 2}, {"pp", "dp", "tp"});
    const std::size_t groups = world.groups();
    EXPECT_EQ(mesh["tp"].joined(mesh["pp"]).id(), mesh.submesh({"pp", "tp"}).id());
    EXPECT_EQ(mesh.submesh({"pp", "tp"}).joined(mesh["dp"]).id(), mesh.id());
    EXPECT_FALSE(mesh["tp"].joined(mesh["tp"]).defined());
    EXPECT_FALSE(mesh["tp"].joined(mesh).defined());
    EXPECT_EQ(world.groups(), groups);
    const DeviceMesh other = init_device_mesh(world, {2, 4}, {"dp", "tp"});
    EXPECT_FALSE(mesh["tp"].joined(other["dp"]).defined());
    co_return;
  });
}

// Collectives over both dimensions have the order of the mesh, not that of its ranks.
TEST(SubMesh, JoinedWithDimensionsThatLieAroundItGathersInOrder) {
  on_ranks(8, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2, 2}, {"pp", "dp", "tp"});
    const DeviceMesh around = mesh.submesh({"pp", "tp"}).flatten();
    const DeviceMesh joint = around.joined(mesh["dp"]);
    EXPECT_EQ(joint.names(), (std::vector<std::string>{"pp_tp", "dp"}));
    std::vector<double> values(24);
    std::iota(values.begin(), values.end(), 0);
    const Tensor whole = Tensor::from_values(world.device(), Shape{8, 3}, DType::F64, values);
    for (const Layout& layout : {Layout(Shard(0), Shard(0)), Layout(StridedShard(0, 2), Shard(0)),
                                 Layout(Shard(0), Shard(1)), Layout(Partial(), Shard(0))}) {
      const DTensor x = distribute_tensor(whole, joint, layout);
      const Redistribution all = x.redistribute(Replicate(), Replicate());
      const DTensor whole_again = co_await all;
      EXPECT_EQ(whole_again.to_vector(), values) << layout;
      const Redistribution turned = x.redistribute(Shard(1), Shard(0));
      const DTensor other = co_await turned;
      EXPECT_EQ(other.full_tensor().to_vector(), values) << layout;
    }
  });
}

TEST(SubMesh, MakesNoCommunicatorAndASecondSliceIsTheSameMesh) {
  on_ranks(4, [](World& world) -> Task<void> {
    CountingObserver seen(world);
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    EXPECT_EQ(world.groups(), 2U);
    const DeviceMesh tp = mesh["tp"];
    EXPECT_EQ(tp.id(), mesh["tp"].id());
    EXPECT_EQ(mesh.id(), mesh.submesh({"dp", "tp"}).id());
    EXPECT_EQ(world.groups(), 2U);
    EXPECT_EQ(seen.total(), 0);
    EXPECT_EQ(tp.communicator(0).rank(), tp.local_rank());
    EXPECT_EQ(&tp.communicator(), &tp.communicator(0));
    EXPECT_EQ(&tp.communicator("tp"), &tp.communicator(0));
    co_return;
  });
}

TEST(SubMesh, NamesMustExistOnceAndInOrder) {
  on_ranks(8, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2, 2}, {"pp", "dp", "tp"});
    EXPECT_TRUE(says(mesh_refusal([&] { mesh["cp"]; }),
                     "mesh[\"cp\"]: the mesh (pp=2,dp=2,tp=2) has no dimension 'cp'"));
    EXPECT_TRUE(says(mesh_refusal([&] { mesh.submesh({"tp", "dp"}); }), "'dp' is out of order"));
    EXPECT_TRUE(says(mesh_refusal([&] { mesh.submesh({"dp", "dp"}); }), "'dp'"));
    EXPECT_TRUE(says(mesh_refusal([&] { mesh["tp"]["dp"]; }), "tp=2 has no dimension 'dp'"));
    mesh_refusal([&] { mesh.submesh({}); });
    EXPECT_TRUE(says(mesh_refusal([&] { mesh.size("cp"); }), "'cp'"));
    EXPECT_TRUE(says(mesh_refusal([&] { mesh.local_rank(); }), "3 dimensions"));
    EXPECT_TRUE(says(mesh_refusal([&] { mesh.communicator(); }), "3 dimensions"));
    co_return;
  });
}

TEST(Flatten, MakesOneCommunicatorOnceAndItsNameSlices) {
  on_ranks(8, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2, 2}, {"dp", "cp", "tp"});
    const int r = world.rank();
    EXPECT_EQ(world.groups(), 3U);
    const DeviceMesh flat = mesh.submesh({"dp", "cp"}).flatten();
    EXPECT_EQ(world.groups(), 4U);
    EXPECT_EQ(str_cat(flat), "dp_cp=4");
    EXPECT_EQ(flat.ranks(), r & 1 ? (Ranks{1, 3, 5, 7}) : (Ranks{0, 2, 4, 6}));
    EXPECT_EQ(flat.communicator(0).name(), "dp_cp");
    EXPECT_EQ(flat.communicator(0).rank(), flat.local_rank());
    EXPECT_EQ(mesh.submesh({"dp", "cp"}).flatten().id(), flat.id());
    EXPECT_EQ(mesh["dp_cp"].id(), flat.id());
    const DeviceMesh two = mesh.submesh({"dp_cp", "tp"});
    EXPECT_EQ(two.shape(), (Ranks{4, 2}));
    EXPECT_EQ(two.coordinate(), (Ranks{r >> 1, r & 1}));
    EXPECT_EQ(two.ranks(), mesh.ranks());
    EXPECT_EQ(mesh.submesh({"dp", "tp"}).flatten("fsdp").ranks(),
              r & 2 ? (Ranks{2, 3, 6, 7}) : (Ranks{0, 1, 4, 5}));
    EXPECT_EQ(mesh["tp"].flatten().id(), mesh["tp"].id());
    EXPECT_EQ(world.groups(), 5U);
    co_return;
  });
}

TEST(Flatten, NamesAreGivenOnce) {
  on_ranks(8, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2, 2}, {"dp", "cp", "tp"});
    const DeviceMesh dp_cp = mesh.submesh({"dp", "cp"}), dp_tp = mesh.submesh({"dp", "tp"});
    EXPECT_TRUE(says(mesh_refusal([&] { dp_cp.flatten("tp"); }),
                     "'tp' is already the name of a dimension"));
    dp_cp.flatten("x");
    EXPECT_TRUE(says(mesh_refusal([&] { dp_tp.flatten("x"); }), "'x'"));
    dp_tp.flatten("outer");
    EXPECT_TRUE(says(mesh_refusal([&] { mesh.submesh({"outer", "cp"}); }), "out of order"));
    EXPECT_TRUE(says(mesh_refusal([&] { mesh.submesh({"x", "cp"}); }), "'cp'"));
    EXPECT_TRUE(says(mesh_refusal([&] { mesh["tp"]["x"]; }), "'x'"));
    co_return;
  });
}

TEST(DeviceMesh, AMergedCommunicatorIsTheOneThatFlattenGives) {
  on_ranks(8, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2, 2}, {"dp", "cp", "tp"});
    const Ranks outer{0, 1}, ends{0, 2}, reversed{1, 0}, one{1};
    Communicator& merged = mesh.communicator(outer);
    EXPECT_EQ(merged.size(), 4);
    EXPECT_EQ(merged.rank(), world.rank() >> 1);
    EXPECT_EQ(&merged, &mesh.submesh({"dp", "cp"}).flatten().communicator(0));
    EXPECT_EQ(&mesh.communicator(ends), &mesh.submesh({"dp", "tp"}).communicator(outer));
    EXPECT_EQ(&mesh.communicator(one), &mesh.communicator(1));
    EXPECT_EQ(world.groups(), 5U);
    mesh_refusal([&] { mesh.communicator(reversed); });
    co_return;
  });
}

TEST(DeviceMesh, OnlyTheRanksOfASliceNeedFlattenIt) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2, 1}, {"pp", "dp", "tp"});
    if (mesh.local_rank("pp") == 1) co_return;
    const DeviceMesh flat = mesh.submesh({"dp", "tp"}).flatten();
    Collective barrier;
    flat.communicator(0).issue(barrier).wait();
    EXPECT_EQ(flat.ranks(), (Ranks{0, 1}));
  });
}

TEST(DeviceMesh, ADimensionThatItLacksIsNamed) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    for (const int dim : {-1, 1}) {
      const std::string which =
          "dimension " + std::to_string(dim) + " is out of range for mesh tp=2";
      EXPECT_EQ(mesh_refusal([&] { mesh.size(dim); }), "size: " + which);
      EXPECT_EQ(mesh_refusal([&] { mesh.local_rank(dim); }), "local_rank: " + which);
      EXPECT_EQ(mesh_refusal([&] { mesh.communicator(dim); }), "communicator: " + which);
    }
    co_return;
  });
}

TEST(DeviceMesh, SaysThatItsWorldHasEnded) {
  Tensor kept;
  on_ranks(2, [&](World& world) -> Task<void> {
    const DTensor x = ones(init_device_mesh(world, {2}, {"tp"}), Shard(0), {4});
    if (world.rank() == 0) kept = x;
    co_return;
  });
  EXPECT_EQ(kept.to_vector(), (std::vector<double>{1, 1}));
  const std::function<void()> uses[] = {
      [&] { kept.full_tensor(); }, [&] { zeros(kept.mesh(), {4}); }, [&] { kept.mesh().world(); }};
  for (const auto& use : uses) {
    try {
      use();
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("tp=2 has ended"), std::string::npos);
    }
  }
  std::ostringstream text;
  text << kept;
  EXPECT_EQ(text.str(), "[1., 1.]\nrank 0's shard [2] of f32[4] S(0) on tp=2");
}

TEST(DeviceMesh, RanksThatOrderItDifferentlyAreToldBothOrders) {
  std::string text;
  try {
    on_ranks(3, [](World& world) -> Task<void> {
      const std::vector<int> order =
          world.rank() == 1 ? std::vector<int>{0, 2, 1} : std::vector<int>{0, 1, 2};
      const DeviceMesh mesh = DeviceMesh::from_ranks(world, order, {3}, {"tp"});
      co_await ones(mesh, Shard(0), {3}).redistribute(Replicate());
    });
  } catch (const Error& error) {
    text = error.what();
  }
  EXPECT_NE(text.find("on tp[3] (S(0)->R)"), std::string::npos) << text;
  EXPECT_NE(text.find("on tp[3] of ranks 0,2,1 (S(0)->R)"), std::string::npos) << text;
}

}  // namespace
}  // namespace coshard
