// Sharded data parallelism: losses and gradients as those of DataParallel, and what it refuses.
#include <coshard/styles/fully_shard.h>

#include <algorithm>
#include <functional>

#include <coshard/runtime/launch/simulate.h>
#include "tests/styles/sharded_layers.h"
#include "tests/support/seeds.h"

namespace coshard::testing {
namespace {

TEST(FullyShard, TrainsAsDataParallelDoes) {
  for (const int ranks : {1, 2, 3, 4})
    on_ranks(ranks, [](World& world) -> Task<void> {
      const Trained want = co_await trained(world, Way::Replicas, {});
      for (const bool reshard : {false, true})
        for (const Overlap overlap : {Overlap::Off, Overlap::Auto}) {
          const ShardingKind kind{.reshard = reshard, .overlap = overlap};
          const Trained got = co_await trained(world, Way::Shards, kind);
          expect_same(got, want);
        }
    });
}

TEST(FullyShard, TrainsWithRecomputationWeavingAndAccumulation) {
  for (const int ranks : {2, 3})
    on_ranks(ranks, [](World& world) -> Task<void> {
      for (const ShardingKind plain :
           {ShardingKind{.recomputes = true}, ShardingKind{.parts = 2}, ShardingKind{.batches = 3},
            ShardingKind{.recomputes = true, .parts = 2, .batches = 2}}) {
        Task<Trained> alike = trained(world, Way::Replicas, plain, 4);
        const Trained want = co_await std::move(alike);
        for (const bool reshard : {false, true})
          for (const bool whole_only : {false, true}) {
            ShardingKind kind = plain;
            kind.reshard = reshard;
            kind.whole_only = whole_only;
            Task<Trained> sharded = trained(world, Way::Shards, kind, 4);
            const Trained got = co_await std::move(sharded);
            expect_same(got, want);
          }
      }
    });
}

TEST(FullyShard, RunsAsOneRankDoesToTheBit) {
  on_ranks(3, [](World& world) -> Task<void> {
    const auto [alone, sharded] = twins<Layers>(world);
    shard_layers(*sharded, dp_line(world), {});
    const Tensor x = rows_of(world, 1, 0);
    for (const bool recorded : {true, false}) {
      std::optional<NoGradGuard> no_grad;
      if (!recorded) no_grad.emplace();
      for (int time = 0; time < 2; ++time) {
        const Tensor want = co_await alone->forward(x);
        const Tensor got = co_await sharded->forward(x);
        EXPECT_EQ(got.to_vector(), want.to_vector());
        EXPECT_EQ(got.requires_grad(), recorded);
      }
    }
  });
}

TEST(FullyShard, LeavesShardsAndTheirGradients) {
  on_ranks(4, [](World& world) -> Task<void> {
    Layers model(world, 1);
    const Tensor before = model.layers[0].net1.weight.detach();
    const DeviceMesh mesh = dp_line(world);
    shard_layers(model, mesh, {});
    const Tensor& weight = model.layers[0].net1.weight;  // 7 rows: 2, 2, 2, 1
    EXPECT_EQ(weight.layout(), Layout(Shard(0)));
    EXPECT_EQ(weight.local_shape()[0], world.rank() == 3 ? 1 : 2);
    EXPECT_EQ(full_tensor(weight.detach()).to_vector(), before.to_vector());
    EXPECT_EQ(model.parameters().size(), 5U);
    const Tensor y = co_await model.forward(rows_of(world, 0, 0));
    co_await backward(mean(mul(y, y)));
    for (const Tensor& p : model.parameters()) {
      EXPECT_EQ(p.grad().layout(), Layout(Shard(0)));
      EXPECT_TRUE(p.grad().in_flight());
    }
    Task<Tensor> clipping = clip_grad_norm(model.parameters(), 1e9);
    co_await std::move(clipping);
    EXPECT_EQ(weight.grad().local_shape(), weight.local_shape());
  });
}

// Of n groups: a gather each in forward; in backward another and a reduction.
TEST(FullyShard, IssuesOneCollectivePerGroup) {
  on_ranks(2, [](World& world) -> Task<void> {
    for (const bool reshard : {false, true})
      for (const Overlap overlap : {Overlap::Off, Overlap::Auto}) {
        Layers model(world);
        shard_layers(model, dp_line(world), {.reshard_after_forward = reshard, .overlap = overlap});
        for (int time = 0; time < 3; ++time) {
          const Counted run = co_await run_counted(world, model, rows_of(world, 0, 0));
          EXPECT_EQ(run.forward, (Issued{.all_gather = 4}));
          EXPECT_EQ(run.backward, (Issued{.all_gather = reshard ? 4 : 0, .reduce_scatter = 4}));
        }
      }
  });
}

// --- modules that are not one chain ---

// Runs its layer twice, and another one not at all; a parameter is in two slots.
struct Odd : Module {
  explicit Odd(World& world) : twice(world), unused(world) {
    register_module("twice", twice);
    register_module("unused", unused);
    for (Tensor* slot : {&first, &second, &idle}) *slot = Tensor();
    first = random(world, Shape{10}).set_requires_grad(true);
    second = first;
    idle = ones(world.device(), Shape{3}, DType::F64).set_requires_grad(true);
    frozen = random(world, Shape{10});
    register_parameter("first", first);
    register_parameter("second", second);
    register_parameter("idle", idle);
    register_parameter("frozen", frozen);
  }
  Task<Tensor> run(Tensor x) override {
    Tensor y = co_await twice.forward(mul(x, first));
    y = co_await twice.forward(mul(y, frozen));
    co_return mul(y, second);
  }
  Mlp twice, unused;
  Tensor first, second, idle, frozen;
};

TEST(FullyShard, TakesModulesThatRunTwiceTiedFrozenAndUnusedParameters) {
  on_ranks(3, [](World& world) -> Task<void> {
    for (const bool reshard : {false, true}) {
      const auto [plain, sharded] = twins<Odd>(world);
      const DeviceMesh mesh = dp_line(world);
      const FullyShardOptions options{.reshard_after_forward = reshard};
      for (Module* part :
           std::initializer_list<Module*>{&sharded->twice, &sharded->unused, sharded.get()})
        fully_shard(*part, mesh, options);
      const DataParallel replicas(plain->parameters(), mesh, 0);
      EXPECT_EQ(sharded->first.id(), sharded->second.id());
      for (int time = 0; time < 3; ++time) {
        plain->zero_grad();
        sharded->zero_grad();
        Tensor x = rows_of(world, time, 0).set_requires_grad(true), input_grad;
        for (Odd* model : {plain.get(), sharded.get()}) {
          const Tensor y = co_await model->forward(x);
          co_await backward(mean(mul(y, y)));
          if (model == plain.get()) input_grad = x.grad();
          if (model == sharded.get()) expect_close(x.grad(), input_grad);
          x.set_grad({});
        }
        const auto want = plain->named_parameters(), got = sharded->named_parameters();
        for (std::size_t i = 0; i < want.size(); ++i) {
          const Tensor gradient = want[i].slot->grad();
          EXPECT_EQ(got[i].slot->grad().defined(), gradient.defined()) << want[i].name;
          if (gradient.defined()) expect_close(got[i].slot->grad(), gradient);
        }
      }
    }
  });
}

// All of it is frozen, but its input wants a gradient: backward still needs what was freed.
TEST(FullyShard, GathersFrozenParametersForTheGradientOfTheInput) {
  on_ranks(2, [](World& world) -> Task<void> {
    const auto [plain, sharded] = twins<Layers>(world);
    for (Module* model : {plain.get(), sharded.get()})
      for (Tensor p : model->parameters()) p.set_requires_grad(false);
    shard_layers(*sharded, dp_line(world), {});
    const Tensor x = rows_of(world, 0, 0);
    const Counted want = co_await run_counted(world, *plain, x.detach());
    const Counted got = co_await run_counted(world, *sharded, x.detach());
    expect_close(got.input_grad, want.input_grad);
    EXPECT_EQ(got.backward, (Issued{.all_gather = 4}));
  });
}

// --- beside tensor parallelism ---

struct TwoWays {
  bool shards = false, sequence_parallel = false, recomputes = false, tp_first = false;
  int batches = 1;
};

Task<Trained> trained_two_ways(World& world, TwoWays kind) {
  manual_seed(5);
  nn::TransformerConfig config = tiny_transformer();
  config.dtype = DType::F64;
  nn::Transformer model(config, world);
  std::vector<std::string> names = {"dp", "tp"};
  if (kind.tp_first) std::ranges::reverse(names);
  const DeviceMesh mesh = init_device_mesh(world, {2, 2}, names);
  co_await parallelize_module(model, mesh["tp"], nn::transformer_plan(kind.sequence_parallel));
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    if (kind.shards) fully_shard(model.layers[i], mesh["dp"]);
    model.layers[i].set_recompute(kind.recomputes);
  }
  std::optional<DataParallel> replicas;
  if (kind.shards)
    fully_shard(model, mesh["dp"]);
  else
    replicas.emplace(model.parameters(), mesh, mesh.dim("dp"));
  AdamW optimizer(model.parameters(), {.lr = 0.01});
  manual_seed(static_cast<std::uint64_t>(9 + mesh.local_rank("dp")));
  Trained done;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    for (int batch = 0; batch < kind.batches; ++batch) {
      if (replicas) replicas->set_requires_gradient_sync(batch + 1 == kind.batches);
      const Tensor tokens = randint(0, 32, Shape{2, 8});
      const Tensor logits = co_await model.forward(tokens);
      const Tensor loss = co_await loss_parallel_cross_entropy(logits, tokens);
      done.losses.push_back(to_local(loss.detach()).item());
      co_await backward(loss);
    }
    Task<void> update = clip_and_step(optimizer, done);
    co_await std::move(update);
  }
  note_parameters(optimizer, done);
  co_return done;
}

TEST(FullyShard, ShardsWhatTensorParallelismHasCut) {
  on_ranks(4, [](World& world) -> Task<void> {
    for (const bool tp_first : {false, true})
      for (const bool sequence_parallel : {false, true})
        for (const bool recomputes : {false, true}) {
          TwoWays kind{.sequence_parallel = sequence_parallel,
                       .recomputes = recomputes,
                       .tp_first = tp_first,
                       .batches = recomputes ? 2 : 1};
          Task<Trained> alike = trained_two_ways(world, kind);
          const Trained want = co_await std::move(alike);
          kind.shards = true;
          Task<Trained> sharded = trained_two_ways(world, kind);
          const Trained got = co_await std::move(sharded);
          expect_same(got, want);
        }
  });
}

struct InPlace : Mlp {
  using Mlp::Mlp;
  Task<Tensor> run(Tensor x) override {
    Tensor y = co_await net1.forward(x);
    mul_(y, 2);
    Tensor z = co_await net2.forward(y);
    add_(z, x);
    co_return z;
  }
};

TEST(FullyShard, LetsOutputsBeWrittenToInPlace) {
  on_ranks(2, [](World& world) -> Task<void> {
    const auto [plain, sharded] = twins<InPlace>(world);
    fully_shard(sharded->net1, dp_line(world));
    fully_shard(*sharded, dp_line(world));
    const Tensor x = rows_of(world, 0, 0);
    const Counted want = co_await run_counted(world, *plain, x.detach());
    const Counted got = co_await run_counted(world, *sharded, x.detach());
    expect_close(got.input_grad, want.input_grad);
    EXPECT_EQ(got.output.to_vector(), want.output.to_vector());
  });
}

// A whole Transformer, whose blocks are checkpointed within one group, or are groups.
TEST(FullyShard, TrainsATransformer) {
  on_ranks(2, [](World& world) -> Task<void> {
    std::vector<std::vector<double>> want;
    for (int way = 0; way < 4; ++way) {
      manual_seed(5);
      nn::TransformerConfig config = tiny_transformer();
      config.dtype = DType::F64;
      nn::Transformer model(config, world);
      const DeviceMesh mesh = dp_line(world);
      std::optional<DataParallel> replicas;
      if (way == 0) replicas.emplace(model.parameters(), mesh, 0);
      for (std::size_t i = 0; i < model.layers.size(); ++i) {
        if (way == 2 || way == 3) fully_shard(model.layers[i], mesh);
        model.layers[i].set_recompute(way == 1 || way == 3);
      }
      if (way > 0) fully_shard(model, mesh);
      AdamW optimizer(model.parameters(), {.lr = 0.01});
      manual_seed(static_cast<std::uint64_t>(9 + world.rank()));
      std::vector<std::vector<double>> losses(1);
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        const Tensor tokens = randint(0, 32, Shape{2, 8});
        const Tensor logits = co_await model.forward(tokens);
        const Tensor loss = cross_entropy(logits.reshape({16, 32}), tokens.reshape({16}));
        losses[0].push_back(loss.item());
        co_await backward(loss);
        co_await optimizer.step();
      }
      if (way == 0) want = losses;
      expect_all_near(losses[0], want[0]);
    }
  });
}

TEST(FullyShard, RefusesWhatItCannotShard) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = dp_line(world);
    const auto refused = [&](Module& module, const DeviceMesh& on,
                             const FullyShardOptions& options = {}) {
      return error_of([&] { fully_shard(module, on, options); }, ErrorKind::BadInput);
    };
    Layers model(world);
    std::string text = refused(model, DeviceMesh());
    EXPECT_CONTAINS(text, "the mesh is undefined");
    text = refused(model, init_device_mesh(world, {1, 2, 1}, {"pp", "dp", "tp"}));
    EXPECT_CONTAINS(text, "(pp=1,dp=2,tp=1) has 3 dimensions");
    text = refused(model, mesh, {.reduce = Reduce::Max});
    EXPECT_CONTAINS(text, "must be Sum or Avg");
    fully_shard(model.layers[0], mesh);
    text = refused(model.layers[0], mesh);
    EXPECT_CONTAINS(text, "Mlp 'layers.0' was sharded before, by a call of its own");
    fully_shard(model, mesh);
    text = refused(model.layers[1], mesh);
    EXPECT_CONTAINS(text, "Mlp 'layers.1' was sharded before, as a part of Layers");
    Mlp half(world);
    half.net1.weight = random(world, Shape{16, 10}, DType::F32);
    text = refused(half, mesh);
    EXPECT_CONTAINS(text, "'net1.bias' is f64[16], but others of its group are f32");
    Mlp tied(world);
    const Tensor both = tied.net2.bias = tied.net1.bias = random(world, Shape{10});
    text = refused(tied.net1, mesh);
    EXPECT_CONTAINS(text, "'net1.bias' (f64[10]) is tied to 'net2.bias', which is outside of");
    tied.net2.bias = random(world, Shape{10});
    fully_shard(tied.net1, mesh);
    tied.net2.bias = both;
    text = refused(tied, mesh);
    EXPECT_CONTAINS(text, "'net2.bias' (f64[10]) is tied to one");
    Mlp cut(world);
    ParallelPlan plan;
    plan["net1"] = ColwiseParallel{};
    co_await parallelize_module(cut, line(world), plan);
    text = error_of([&] { fully_shard(cut, mesh); }, ErrorKind::Unsupported);
    EXPECT_CONTAINS(text, "'net1.weight' is f64[16,10] S(0) on tp=2, and cannot be sharded along");
    Mlp summed(world);
    const DataParallel parallel(summed.parameters(), mesh, 0);
    text = refused(summed, mesh);
    EXPECT_CONTAINS(text, "whose gradients a DataParallel sums");
    EXPECT_FALSE(summed.net1.weight.is_distributed());
  });
}

// Which would sum nothing: the gradients of shards come from the group's reduce_scatter.
TEST(FullyShard, DataParallelOverItsParametersIsRefusedAndReducingAfterBackwardIsRight) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"replicate", "shard"});
    nn::Linear model(4, 4, world, {.bias = false});
    fully_shard(model, mesh["shard"]);
    for (const char* dim : {"replicate", "shard"}) {
      const std::string text =
          error_of([&] { const DataParallel parallel(model.parameters(), mesh, mesh.dim(dim)); });
      EXPECT_CONTAINS(text, "is reduced by fully_shard; call all_reduce_gradients");
    }
    const Tensor x = mul(ones(world.device(), Shape{1, 4}), world.rank() + 1.0);
    co_await backward(sum(co_await model.forward(x)));
    all_reduce_gradients(model.parameters(), mesh, mesh.dim("replicate"), Reduce::Avg);
    const Tensor gradient = full_tensor(model.weight.grad());
    EXPECT_EQ(gradient.to_vector(), std::vector<double>(16, 2.5));
  });
}

Task<void> train_in_parts(World& world, std::uint64_t seed) {
  const ShardingKind kind{
      .reshard = seed % 2 == 0, .recomputes = seed % 3 == 0, .parts = 1 + int(seed % 4 / 2)};
  Task<Trained> alike = trained(world, Way::Replicas, kind, 2);
  const Trained want = co_await std::move(alike);
  Task<Trained> sharded = trained(world, Way::Shards, kind, 2);
  const Trained got = co_await std::move(sharded);
  expect_same(got, want);
}

TEST(FullyShard, IsTheSameInEveryInterleaving) {
  const WorldOptions options = test_options(3);
  if (!on_cpu() || options.communicator != "local") GTEST_SKIP() << "needs the simulation";
  const std::uint64_t first = testing::first_seed();
  const std::uint64_t count = testing::number_of("--seeds", "COSHARD_SEEDS", 48);
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const auto program = [seed](World& world) { return train_in_parts(world, seed); };
    EXPECT_NO_THROW(simulate(options, program, seed)) << testing::how_to_replay(seed);
  }
}
}  // namespace
}  // namespace coshard::testing
