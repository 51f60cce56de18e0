// Ranks whose random streams differ.
#include <gtest/gtest.h>

#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::on_ranks;
using Values = std::vector<double>;

// What the world says of `body` that every rank runs; "" when it does not fail.
std::string world_says(int ranks, const std::function<Task<void>(World&)>& body) {
  try {
    on_ranks(ranks, body);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::CommFailed) << error.what();
    return error.what();
  }
  return "";
}

DeviceMesh line(World& world) { return init_device_mesh(world, {world.size()}, {"tp"}); }

Redistribution any_collective(const DeviceMesh& mesh) {
  return ones(mesh, Partial(), {1}).redistribute(Replicate());
}

TEST(RandomStreams, ARankThatDrewOneTensorMoreFailsAtTheNextCollective) {
  const std::string text = world_says(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    manual_seed(7);
    if (world.rank() == 1) randn(world.device(), {2});
    const DTensor noise = randn(mesh, Replicate(), {4});
    co_await any_collective(mesh);
  });
  const auto others = text.find(" last drew random stream 0 of seed 7");  // of rank 0 or 2
  EXPECT_NE(others, std::string::npos) << text;
  EXPECT_NE(text.find("rank 1 last drew random stream 1 of seed 7"), std::string::npos) << text;
}

TEST(RandomStreams, DropoutOfADTensorIsComparedToo) {
  const std::string text = world_says(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    if (world.rank() == 1) randn(world.device(), {2});
    const DTensor y = dropout(ones(mesh, Replicate(), {4}), 0.5, true);
    co_await any_collective(mesh);
  });
  EXPECT_NE(text.find("drew random stream"), std::string::npos) << text;
}

// Over several mesh dimensions at once, on a communicator of its own: made after the draw, or
// before.
TEST(RandomStreams, DifferentDrawsFailAtACollectiveOverSeveralMeshDimensionsToo) {
  for (const bool made_before : {false, true}) {
    const std::string text = world_says(4, [made_before](World& world) -> Task<void> {
      const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
      const Layout partial(Partial(), Partial()), whole(Replicate(), Replicate());
      if (made_before) co_await ones(mesh, partial, {1}).redistribute(whole);
      if (world.rank() < 2) randn(world.device(), {2});
      const DTensor noise = randn(mesh, whole, {4});
      co_await ones(mesh, partial, {1}).redistribute(whole);
    });
    EXPECT_NE(text.find("last drew random stream 0"), std::string::npos) << text;
    EXPECT_NE(text.find("last drew random stream 1"), std::string::npos) << text;
  }
}

// Which meshes a rank still has depends on what its caches forget.
TEST(RandomStreams, ASliceThatOneRankKeepsAndOthersMakeAgainIsTheSame) {
  const std::string text = world_says(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {1, 2, 2}, {"pp", "dp", "tp"});
    const Layout partial(Partial(), Partial()), whole(Replicate(), Replicate());
    DeviceMesh slice = mesh.submesh({"dp", "tp"});
    randn(slice, whole, {4});
    if (world.rank() != 1) {
      slice = DeviceMesh();
      forget_dropped_meshes();
    }
    const DeviceMesh again = mesh.submesh({"dp", "tp"});
    co_await ones(again, partial, {1}).redistribute(whole);
  });
  EXPECT_EQ(text, "");
}

TEST(RandomStreams, DrawsOfPlainTensorsAndOnSmallerMeshesAloneAreLegal) {
  const std::string text = world_says(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    const std::vector<int> low{0, 1}, high{2, 3};
    const bool is_low = world.rank() < 2;
    const DeviceMesh half = DeviceMesh::from_ranks(world, is_low ? low : high, {2}, {"half"});
    if (world.rank() == 3) randn(world.device(), {2});
    co_await any_collective(mesh);
    manual_seed(is_low ? 1 : 2);
    const DTensor total = sum(randn(half, Shard(0), {4}));
    co_await total.redistribute(Replicate());
    co_await any_collective(mesh);
  });
  EXPECT_EQ(text, "");
}

TEST(RandomStreams, LocalRandomKeepsADrawOfOneRankOutOfTheStream) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    manual_seed(7);
    const Values want = randn(world.device(), {4}, DType::F64).to_vector();
    manual_seed(7);
    Values first, second;
    if (world.rank() == 1) {
      {
        const LocalRandom mine;
        first = randn(world.device(), {4}, DType::F64).to_vector();
        second = randn(world.device(), {4}, DType::F64).to_vector();
      }
      const LocalRandom again;
      EXPECT_NE(randn(world.device(), {4}, DType::F64).to_vector(), first);
      EXPECT_NE(first, second);
      EXPECT_NE(first, want);
    }
    EXPECT_EQ(randn(mesh, Replicate(), {4}, DType::F64).to_vector(), want);
    co_await any_collective(mesh);
  });
}

TEST(RandomStreams, LocalRandomDiffersFromRankToRank) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    manual_seed(7);
    const Tensor both = [&] {
      const LocalRandom mine;
      return randn(world.device(), {1}, DType::F64);
    }();
    const DTensor rows = from_local(both, mesh, Shard(0));
    const Values all = full_tensor(rows).to_vector();
    EXPECT_NE(all[0], all[1]);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
