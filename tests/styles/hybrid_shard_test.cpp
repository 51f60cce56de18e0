// fully_shard on two mesh dimensions: shards along the second, replicas of them along the first.
#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "tests/styles/one_device.h"
#include "tests/styles/sharded_layers.h"
#include "tests/support/hidden_products.h"

namespace coshard::testing {
namespace {

DeviceMesh hybrid_mesh(World& world, int replicas, int shards) {
  return init_device_mesh(world, {replicas, shards}, {"replicate", "shard"});
}

// Two MLPs whose weights are tied, and a scale.
struct TiedMlps : Module {
  explicit TiedMlps(World& world) : one(world, 10, 7, 10), two(world, 10, 7, 10) {
    two.net1.weight = one.net1.weight;
    scale = ones(world.device(), Shape{10}, DType::F64).set_requires_grad(true);
    register_module("one", one);
    register_module("two", two);
    register_parameter("scale", scale);
  }
  Task<Tensor> run(Tensor x) override {
    x = co_await one.forward(x);
    x = co_await two.forward(x);
    co_return mul(x, scale);
  }
  Mlp one, two;
  Tensor scale;
};

TEST(HybridShard, TrainsAsOneDeviceDoes) {
  for (const std::pair<int, int>& size : std::initializer_list<std::pair<int, int>>{
           {1, 2}, {2, 1}, {2, 2}, {3, 2}, {2, 3}, {2, 4}, {4, 2}})
    on_ranks(size.first * size.second, [size](World& world) -> Task<void> {
      const DeviceMesh mesh = hybrid_mesh(world, size.first, size.second);
      for (const bool recomputes : {false, true})
        for (const Overlap overlap : {Overlap::Off, Overlap::Auto}) {
          const FullyShardOptions options{.reshard_after_forward = recomputes, .overlap = overlap};
          const DataRank data{world.rank(), world.size()};
          const auto [alone, sharded] = twins<Layers>(world);
          shard_layers(*sharded, mesh, options);
          sharded->layers[1].set_recompute(recomputes);
          EXPECT_EQ(sharded->scale.layout(), Layout(Replicate(), Shard(0)));
          Task<void> alike = expect_as_on_one_device(world, *sharded, *alone, data, 10);
          co_await std::move(alike);
          const auto [one, tied] = twins<TiedMlps>(world);
          fully_shard(*tied, mesh, options);
          tied->two.set_recompute(recomputes);
          alike = expect_as_on_one_device(world, *tied, *one, data, 10);
          co_await std::move(alike);
          EXPECT_EQ(tied->one.net1.weight.id(), tied->two.net1.weight.id());
        }
    });
}

TEST(HybridShard, TrainsUnevenTensorParallelLayersAsOneDeviceDoes) {
  on_ranks(8, [](World& world) -> Task<void> {
    for (const std::vector<std::string>& names :
         {std::vector<std::string>{"replicate", "shard", "tp"},
          std::vector<std::string>{"tp", "replicate", "shard"},
          std::vector<std::string>{"replicate", "tp", "shard"}}) {
      const DeviceMesh mesh = init_device_mesh(world, {2, 2, 2}, names);
      ParallelPlan plan;
      plan["net1"] = ColwiseParallel{};
      plan["net2"] = RowwiseParallel{};
      const auto [alone, sharded] = twins<Mlp>(world, 10, 17, 10);
      co_await parallelize_module(*sharded, mesh["tp"], plan);
      fully_shard(*sharded, mesh.submesh({"replicate", "shard"}));
      const DataRank data{mesh.local_rank("replicate") * 2 + mesh.local_rank("shard"), 4};
      Task<void> alike = expect_as_on_one_device(world, *sharded, *alone, data, 10);
      co_await std::move(alike);
      EXPECT_TRUE(sharded->net1.weight.layout()[mesh.dim("replicate")].is_replicate());
    }
  });
}

// Of n groups: what shards alone need, and an all_reduce each.
TEST(HybridShard, IssuesOneCollectiveMorePerGroup) {
  on_ranks(4, [](World& world) -> Task<void> {
    for (const bool reshard : {false, true}) {
      Layers model(world);
      shard_layers(model, hybrid_mesh(world, 2, 2), {.reshard_after_forward = reshard});
      for (int time = 0; time < 3; ++time) {
        const Counted run = co_await run_counted(world, model, rows_of(world, 0, 0));
        EXPECT_EQ(run.forward, (Issued{.all_gather = 4}));
        EXPECT_EQ(run.backward,
                  (Issued{.all_reduce = 4, .all_gather = reshard ? 4 : 0, .reduce_scatter = 4}));
      }
    }
  });
}

// GEMMs between the issue of an all_reduce and the end of its await.
class UnderAllReduce final : public Observer {
 public:
  explicit UnderAllReduce(World& world) : world_(world) { world.add_observer(this); }
  ~UnderAllReduce() override { world_.remove_observer(this); }
  void issued(const CommEvent& event, std::int64_t) override {
    if (event.kind == CollectiveKind::AllReduce) under_way_.insert(event.id);
  }
  void ready(const CommEvent& event, std::int64_t, std::int64_t, std::int64_t) override {
    under_way_.erase(event.id);
  }
  void computing(std::string_view, ComputeClass what, const DescribeInputs&) override {
    if (what == ComputeClass::Gemm && !under_way_.empty()) ++count;
  }
  int count = 0;

 private:
  World& world_;
  std::set<std::uint64_t> under_way_;
};

Task<int> hidden_under_replicas(World& world, Overlap overlap) {
  Layers model(world);
  shard_layers(model, hybrid_mesh(world, 2, 2), {.overlap = overlap});
  const Tensor y = co_await model.forward(rows_of(world, 0, 0));
  const Tensor loss = mean(mul(y, y));
  const UnderAllReduce hidden(world);
  co_await backward(loss);
  co_return hidden.count;
}

TEST(HybridShard, ComputesUnderSumsOverReplicas) {
  on_slow_ranks(4, [](World& world) -> Task<void> {
    EXPECT_GE(co_await hidden_under_replicas(world, Overlap::Auto), 8);  // of 11
    EXPECT_EQ(co_await hidden_under_replicas(world, Overlap::Off), 0);
  });
}

// What was issued and what was told to be there, by kind.
class Told final : public Observer {
 public:
  explicit Told(World& world) : world_(world) { world.add_observer(this); }
  ~Told() override { world_.remove_observer(this); }
  void issued(const CommEvent& event, std::int64_t) override { ++issues[event.kind]; }
  void ready(const CommEvent& event, std::int64_t, std::int64_t, std::int64_t) override {
    ++readies[event.kind];
  }
  std::map<CollectiveKind, int> issues, readies;

 private:
  World& world_;
};

// The all_reduce that is awaited depends on a reduce_scatter that is not.
TEST(HybridShard, ObserversAreToldWhenEachCollectiveOfAChainIsThere) {
  on_ranks(4, [](World& world) -> Task<void> {
    for (const Overlap overlap : {Overlap::Off, Overlap::Auto}) {
      Layers model(world);
      shard_layers(model, hybrid_mesh(world, 2, 2), {.overlap = overlap});
      const Tensor y = co_await model.forward(rows_of(world, 0, 0));
      const Tensor loss = mean(mul(y, y));
      const Told told(world);
      co_await backward(loss);
      for (const NamedParameter& each : model.named_parameters()) each.slot->grad().wait();
      EXPECT_EQ(told.issues.at(CollectiveKind::ReduceScatter), 4);
      EXPECT_EQ(told.readies, told.issues);
    }
  });
}

TEST(HybridShard, SumsInTheReduceDtype) {
  on_ranks(4, [](World& world) -> Task<void> {
    const MixedPrecisionPolicy policy{.param_dtype = DType::F32, .reduce_dtype = DType::F64};
    const auto [alone, sharded] = twins<Layers>(world, 1);
    shard_layers(*sharded, hybrid_mesh(world, 2, 2), {.mp_policy = policy});
    const Tensor y = co_await sharded->forward(rows_of(world, 0, 0));
    EXPECT_EQ(y.dtype(), DType::F32);
    co_await backward(mean(mul(y, y)));
    for (int rank = 0; rank < 4; ++rank) {
      manual_seed(100);
      const Tensor all = random(world, Shape{8, 10});
      const Tensor x = slice(all, 0, 2 * rank, 2 * rank + 2).detach();
      const Tensor z = co_await alone->forward(x);
      co_await backward(mul(mean(mul(z, z)), 0.25));
    }
    EXPECT_EQ(sharded->scale.grad().dtype(), DType::F64);
    expect_close(sharded->scale.grad(), alone->scale.grad(), 1e-5);
    expect_close(sharded->layers[0].net1.weight.grad(), alone->layers[0].net1.weight.grad(), 1e-5);
  });
}

TEST(HybridShard, TakesTheParametersOfOneRank) {
  on_ranks(4, [](World& world) -> Task<void> {
    for (const int source : {0, 1, 2, 3}) {
      Layers model(world, 1);
      const NoGradGuard no_grad;
      fill_(model.scale, 1.0 + world.rank());
      fully_shard(model, hybrid_mesh(world, 2, 2), {.src_data_rank = source});
      const Tensor whole = full_tensor(model.scale.detach());
      EXPECT_EQ(whole.to_vector(), std::vector<double>(10, 1.0 + source));
    }
    co_return;
  });
}

std::string hybrid_failure(const std::function<Task<void>(World&)>& program) {
  try {
    run_ranks(test_options(4), program);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::CommFailed) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(ReplicasOfShards, ThatStartApartAreAnErrorByName) {
  if (!on_cpu() || test_options(4).communicator != "local") GTEST_SKIP() << "fails a world";
  const std::string text = hybrid_failure([](World& world) -> Task<void> {
    Layers model(world, 1);
    {
      const NoGradGuard no_grad;
      fill_(model.scale, world.rank() < 2 ? 1.0 : 5.0);
    }
    fully_shard(model, hybrid_mesh(world, 2, 2));
    const Tensor y = co_await model.forward(rows_of(world, 0, 0));
    co_await backward(mean(mul(y, y)));
    for (const Tensor& p : model.parameters()) p.grad().wait();
  });
  EXPECT_CONTAINS(text, "'scale'");
}

}  // namespace
}  // namespace coshard::testing
