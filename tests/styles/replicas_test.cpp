// Replicas that start apart: told by name in the first backward, or made those of one rank.
#include <coshard/dtensor/optim/data_parallel.h>
#include <coshard/styles/fully_shard.h>
#include <functional>

#include "tests/styles/sharded_layers.h"
#include "tests/support/ends.h"

namespace coshard::testing {
namespace {

// Rank 1 has another value in one element of one parameter.
Task<void> train(World& world, Way way, bool apart, std::optional<int> source,
                 std::vector<std::vector<double>>* kept = nullptr) {
  manual_seed(5);
  Layers model(world);
  if (apart && world.rank() == 1) {
    const NoGradGuard quiet;
    fill_(model.layers[1].parameters()[0].detach()[0], 3);
  }
  const DeviceMesh mesh = dp_line(world);
  std::optional<DataParallel> replicas;
  if (way == Way::Shards) shard_layers(model, mesh, {.src_data_rank = source});
  AdamW optimizer(model.parameters(), {.lr = 0.01});
  if (way == Way::Replicas)
    replicas.emplace(model.parameters(), mesh, 0, DataParallelOptions{.src_data_rank = source});
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    Task<Tensor> forward = model.forward(rows_of(world, step, 0));
    const Tensor y = co_await std::move(forward);
    Task<void> walk = backward(mean(mul(y, y)));
    co_await std::move(walk);
    Task<void> stepped = optimizer.step();
    co_await std::move(stepped);
  }
  if (kept == nullptr) co_return;
  for (const Tensor& p : optimizer.parameters())
    kept->push_back((p.is_distributed() ? full_tensor(p.detach()) : p.detach()).to_vector());
}

std::vector<End> ends(int ranks, Way way, bool apart, std::optional<int> source) {
  return ends_of(quick_options(ranks),
                 [=](World& world) { return train(world, way, apart, source); });
}

TEST(ReplicasOf, OneRankThatDiffersAreToldByName) {
  for (const int ranks : {2, 3})
    for (const Way way : {Way::Replicas, Way::Shards}) {
      for (const End& end : ends(ranks, way, true, std::nullopt)) {
        EXPECT_TRUE(end.is(ErrorKind::CommFailed)) << end;
        EXPECT_TRUE(end.names(way == Way::Replicas ? "'layers.1." : "'")) << end;
        EXPECT_TRUE(end.names("src_data_rank")) << end;
      }
      for (const End& end : ends(ranks, way, false, std::nullopt)) EXPECT_FALSE(end.failed) << end;
    }
}

TEST(ReplicasOf, OneRankBecomeThoseOfAll) {
  for (const Way way : {Way::Replicas, Way::Shards})
    on_ranks(3, [way](World& world) -> Task<void> {
      std::vector<std::vector<double>> want, got, of_the_other;
      Task<void> alike = train(world, way, false, std::nullopt, &want);
      co_await std::move(alike);
      Task<void> made_alike = train(world, way, true, 0, &got);
      co_await std::move(made_alike);
      EXPECT_EQ(got, want);
      Task<void> taken = train(world, way, true, 1, &of_the_other);
      co_await std::move(taken);
      EXPECT_NE(of_the_other, want);
    });
}

TEST(ReplicasOf, ARankThatIsNotThereAreRefused) {
  for (const Way way : {Way::Replicas, Way::Shards})
    for (const End& end : ends(2, way, false, 2)) {
      EXPECT_TRUE(end.is(ErrorKind::BadInput)) << end;
      EXPECT_TRUE(end.names("src_data_rank 2")) << end;
    }
}

// What was cut does not matter once the shards have been written to, as a checkpoint does.
TEST(ReplicasOf, ShardsThatWereLoadedSinceMayHaveBeenCutFromOthers) {
  on_ranks(2, [](World& world) -> Task<void> {
    manual_seed(static_cast<std::uint64_t>(world.rank()));
    Layers model(world);
    shard_layers(model, dp_line(world), {});
    for (const Tensor& p : model.parameters()) {
      const NoGradGuard quiet;
      fill_(p.detach(), 0.5);
    }
    Task<Tensor> forward = model.forward(rows_of(world, 0, 0));
    const Tensor y = co_await std::move(forward);
    Task<void> walk = backward(sum(y));
    co_await std::move(walk);
    Task<void> arrived = arrival_of({model.scale.grad()});
    co_await std::move(arrived);
  });
}

// Parameters of tensor parallelism are compared along dp alone; an unnamed one by its number.
TEST(ReplicasOf, DTensorsAreComparedAlongTheirReplicas) {
  const auto program = [](bool apart) {
    return [apart](World& world) -> Task<void> {
      const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
      const DeviceMesh tp = mesh["tp"];
      const double value = apart && mesh.local_rank("dp") == 1 ? 5 : 1;
      DTensor w = full(tp, Shard(0), {4}, value, DType::F64, true);
      const DataParallel parallel({w}, mesh, 0);
      Task<void> walk = backward(sum(mul(w, w)));
      co_await std::move(walk);
      Task<void> arrived = arrival_of({w.grad()});
      co_await std::move(arrived);
    };
  };
  for (const End& end : ends_of(quick_options(4), program(false))) EXPECT_FALSE(end.failed) << end;
  // Over processes, a rank of the other pair may hear that its peer left, which the first pair's
  // error has ended, before it hears of that error: here the peer's program ends as if it were done.
  int named = 0;
  for (const End& end : ends_of(quick_options(4), program(true))) {
    EXPECT_TRUE(end.is(ErrorKind::CommFailed)) << end;
    named += end.names("parameter 0") ? 1 : 0;
    EXPECT_TRUE(end.names("parameter 0") || end.names("left the program")) << end;
  }
  EXPECT_GE(named, 2);
}

}  // namespace
}  // namespace coshard::testing
