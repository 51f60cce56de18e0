// Links of a mesh: given, inherited, measured, and what follows from them.
#include <gtest/gtest.h>

#include <coshard/dtensor/calibration/calibrate.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/explain.h>
#include "tests/dtensor/choices/moved_bytes.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::MovedBytes;
using testing::on_ranks;

TEST(Links, AreOneForEachMeshDimensionAndInherited) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh plain = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    EXPECT_EQ(plain.links(), (std::vector<Link>(2)));
    const Link slow{50, 1'000}, fast{1, 200'000};
    const DeviceMesh mesh = plain.with_links({slow, fast});
    EXPECT_EQ(mesh.links(), (std::vector<Link>{slow, fast}));
    EXPECT_EQ(mesh["dp"].links(), std::vector<Link>{slow});
    EXPECT_EQ(mesh["tp"].links(), std::vector<Link>{fast});
    EXPECT_EQ(mesh.flatten().links(), std::vector<Link>{slow});
    EXPECT_EQ(mesh.shape(), plain.shape());
    EXPECT_EQ(&mesh.communicator(0), &plain.communicator(0));
    EXPECT_FALSE(mesh == plain);
    EXPECT_TRUE(mesh == plain.with_links({slow, fast}));
    EXPECT_THROW(plain.with_links({slow}), Error);
    EXPECT_THROW(plain.with_links({slow, {1, 0}}), Error);
    EXPECT_THROW(plain.with_links({slow, {-1, 1}}), Error);
    co_return;
  });
}

// The same call on meshes that differ in nothing else: where messages are dear two large ones go,
// where bytes are, three small ones; each mesh remembers its own choice.
TEST(Links, DecideWhatAnOperatorMoves) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh plain = init_device_mesh(world, {4}, {"tp"});
    const DeviceMesh dear_messages = plain.with_links({{1'000, 1e6}});
    const DeviceMesh dear_bytes = plain.with_links({{0, 100}});
    const Tensor x = counting(world, {1, 8, 64, 16}, DType::F32, 1e-4);
    MovedBytes moved(plain);
    for (int again = 0; again < 2; ++again)
      for (const DeviceMesh& mesh : {dear_messages, dear_bytes}) {
        const DTensor q = distribute_tensor(x, mesh, Shard(2), std::nullopt);
        moved.reset();
        const DTensor y = attention(q, q, q);
        EXPECT_EQ(moved.text(), mesh == dear_bytes ? "all_to_all 3" : "all_gather 2");
        EXPECT_EQ(y.layout(), Layout(mesh == dear_bytes ? Shard(1) : Shard(2)));
      }
    co_return;
  });
}

TEST(Links, PlansFollowThem) {
  ExplainOptions question = parse_question("dp=4,tp=4", "1024,1024", "S(0),R", "R,S(0)");
  const double before = explain(question).us;
  set_link(question, "200us,1GB/s");
  EXPECT_GT(explain(question).us, 5 * before);
  set_link(question, "dp=1us,100GB/s");
  EXPECT_EQ(question.links[0], (Link{1, 100'000}));
  EXPECT_EQ(question.links[1], (Link{200, 1'000}));
  EXPECT_LT(explain(question).us, before);
  EXPECT_THROW(set_link(question, "pp=1us,1GB/s"), Error);
  EXPECT_THROW(set_link(question, "fast"), Error);
}

// What an emulated link takes is found again, the same on all ranks.
TEST(Links, AreMeasuredAlikeOnAllRanks) {
  WorldOptions options = testing::test_options(4);
  options.link = Link{2'000, 500};
  std::vector<std::vector<Link>> found(4);
  run_ranks(options, [&found](World& world) -> Task<void> {
    const DeviceMesh plain = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    Task<DeviceMesh> measuring = measure_links(plain);
    const DeviceMesh mesh = co_await std::move(measuring);
    EXPECT_EQ(mesh.names(), plain.names());
    found[static_cast<std::size_t>(world.rank())] = mesh.links();
  });
  for (const auto& links : found) EXPECT_EQ(links, found[0]);
  for (const Link& link : found[0]) {
    EXPECT_GE(link.latency, 1'900);
    EXPECT_LE(link.latency, 200'000);  // of a busy machine
    EXPECT_GE(link.bytes_per_us, 5);
    EXPECT_LE(link.bytes_per_us, 5'000);
  }
}

}  // namespace
}  // namespace coshard
