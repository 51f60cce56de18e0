#include <coshard/dtensor/mesh/default_mesh.h>

#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/runtime/coro/co_spawn.h>
#include <coshard/runtime/coro/deadline.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using namespace std::chrono_literals;
using testing::on_ranks;

TEST(DefaultMesh, NestsAndIsRestored) {
  on_ranks(4, [](World& world) -> Task<void> {
    EXPECT_THROW(DefaultMesh::current("test"), Error);
    const DeviceMesh line = init_device_mesh(world, {4}, {"tp"});
    {
      const DefaultMesh outer(line);
      EXPECT_EQ(zeros(Shard(0), {8, 2}).local_shape(), (Shape{2, 2}));
      {
        const DefaultMesh inner(init_device_mesh(world, {2, 2}, {"dp", "tp"}));
        EXPECT_EQ(ones(Layout(Shard(0), Shard(1)), {8, 2}).local_shape(), (Shape{4, 1}));
      }
      EXPECT_TRUE(DefaultMesh::current("test") == line);
    }
    EXPECT_THROW(zeros(Shard(0), {8, 2}), Error);
    EXPECT_THROW(DefaultMesh{DeviceMesh()}, Error);
    co_return;
  });
}

TEST(DefaultMesh, IsMeantWhereNoMeshIsGiven) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DefaultMesh scope(mesh);
    const Tensor x = testing::counting(world, {4, 2});
    EXPECT_EQ(distribute_tensor(x, Shard(1)).local_shape(), (Shape{4, 1}));
    EXPECT_EQ(from_local(x, Shard(0)).shape(), (Shape{8, 2}));
    EXPECT_EQ(empty(Replicate(), {3}).layout(), Layout(Replicate()));
    EXPECT_EQ(full(Shard(0), {2}, 5, DType::F64).to_vector(), (std::vector<double>{5}));
    EXPECT_EQ(rand(Shard(0), {6}).mesh().id(), mesh.id());
    EXPECT_EQ(randn(Shard(0), {6}).local_numel(), 3);
    co_return;
  });
}

Task<void> opens_a_scope(DeviceMesh inner, DeviceMesh outer) {
  {
    const DefaultMesh scope(inner);
    co_await sleep_for(20ms);
    EXPECT_TRUE(DefaultMesh::current("test") == inner);
  }
  co_await yield();
  EXPECT_TRUE(DefaultMesh::current("test") == outer);
}
Task<void> spawns_and_leaves_its_scope(World& world) {
  const DeviceMesh outer = init_device_mesh(world, {1}, {"outer"});
  const DeviceMesh inner = init_device_mesh(world, {1}, {"inner"});
  auto scope = std::make_unique<DefaultMesh>(outer);
  bool ended = false;
  co_spawn(world.executor(), opens_a_scope(inner, outer),
           [&](const std::exception_ptr& error) { ended = !error; });
  co_await sleep_for(5ms);
  scope.reset();
  while (!ended) co_await sleep_for(1ms);
  EXPECT_THROW(DefaultMesh::current("test"), Error);
}

TEST(DefaultMesh, OfATaskBesideTheProgramOutlivesTheScopeThatItBeganIn) {
  on_ranks(1, spawns_and_leaves_its_scope);
}

}  // namespace
}  // namespace coshard
