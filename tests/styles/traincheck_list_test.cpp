// The silent errors that TrainCheck (OSDI '25) reproduces, as far as they can be made here, as
// programs. Each comment names the report.
#include "tests/styles/field_lists.h"

namespace coshard::testing {
namespace traincheck_list {
namespace {

constexpr DType F64 = DType::F64;

// A norm on sequence shards, then two sharded layers, as in a block of a Transformer.
struct Block : Module {
  explicit Block(World& world) : norm(10, world, {.dtype = F64}), mlp(world) {
    register_module("norm", norm);
    register_module("mlp", mlp);
  }
  Task<Tensor> run(Tensor x) override {
    const Tensor normed = co_await norm.forward(std::move(x));
    co_return co_await mlp.forward(normed);
  }
  nn::LayerNorm norm;
  Mlp mlp;
};
Task<void> parallelize(Block& block, const DeviceMesh& mesh) {
  ParallelPlan plan;
  plan["norm"] = SequenceParallel{};
  plan["mlp.net1"] = ColwiseParallel{.input_layouts = Shard(1)};
  plan["mlp.net2"] = RowwiseParallel{.output_layouts = Shard(1), .use_local_output = false};
  Task<void> done = parallelize_module(block, mesh, plan);
  co_await std::move(done);
}

// What this rank holds of all gradients, as a number or as a tensor.
Tensor norm_of_own(const std::vector<Tensor>& parameters) {
  Tensor total;
  for (const Tensor& p : parameters) {
    const Tensor g = p.grad().to_local();
    total = total.defined() ? add(total, sum(mul(g, g))) : sum(mul(g, g));
  }
  return sqrt(total);
}

enum class Clip { ByNumber, ByTensor };
Task<void> clip_by_hand(Block& block, Tensor x, Clip how) {
  SGD optimizer(block.parameters(), {.lr = 0.1});
  Task<void> learnt = learn(block, std::move(x));
  co_await std::move(learnt);
  Task<void> reduced = reduce_gradients(block.parameters());
  co_await std::move(reduced);
  {
    const NoGradGuard quiet;
    const Tensor norm = norm_of_own(block.parameters());
    for (const Tensor& p : block.parameters())
      p.set_grad(how == Clip::ByTensor ? div(p.grad(), norm) : div(p.grad(), norm.item()));
  }
  Task<void> stepped = optimizer.step();
  co_await std::move(stepped);
}

// DeepSpeed#1801 (BLOOM-176B): each rank clipped by the norm of what it holds, and the weights of
// norms, which ranks share, went apart.
TEST(TrainCheckList, GradientsThatEachRankClipsByItsOwnNorm) {
  for (const Clip how : {Clip::ByNumber, Clip::ByTensor})
    on_ranks(2, [how](World& world) -> Task<void> {
      Block block(world);
      const DeviceMesh mesh = line(world);
      co_await parallelize(block, mesh);
      const DTensor x = distribute_tensor(random(world, {2, 4, 10}), mesh, Shard(1));
      const End end = co_await end_of(clip_by_hand(block, x, how));
      EXPECT_TRUE(end.is(ErrorKind::BadInput)) << end;
      if (how == Clip::ByNumber) expect_told(end, "norm.weight");
    });
}
TEST(TrainCheckList, ClippedWeightsOfNormsStayTogether) {
  for (const int ranks : {2, 4})
    on_ranks(ranks, [](World& world) -> Task<void> {
      auto [plain, block] = twins<Block>(world);
      const DeviceMesh mesh = line(world);
      co_await parallelize(*block, mesh);
      const Tensor x = random(world, {2, 4, 10});
      co_await one_step(*plain, x, true);
      co_await one_step(*block, distribute_tensor(x, mesh, Shard(1)), true);
      expect_same(*block, *plain);
      co_await verify_replicated(*block);
    });
}

// PyTorch forum 84911: all layers were frozen, and training went on.
TEST(TrainCheckList, AModelWhoseLayersAreAllFrozen) {
  on_ranks(2, [](World& world) -> Task<void> {
    Block block(world);
    for (Tensor p : block.parameters()) p.set_requires_grad(false);
    const DeviceMesh mesh = line(world);
    co_await parallelize(block, mesh);
    const DTensor x = distribute_tensor(random(world, {2, 4, 10}), mesh, Shard(1));
    const End end = co_await end_of(one_step(block, x));
    expect_told(end, "backward");
  });
}

// mmpretrain#702: stages were frozen too late, after the optimizer had been made.
TEST(TrainCheckList, ALayerThatIsFrozenAfterItsOptimizerWasMade) {
  on_ranks(2, [](World& world) -> Task<void> {
    Block block(world);
    const DeviceMesh mesh = line(world);
    co_await parallelize(block, mesh);
    const std::vector<double> before = full_tensor(block.mlp.net1.weight.detach()).to_vector();
    const std::vector<double> other = full_tensor(block.mlp.net2.weight.detach()).to_vector();
    AdamW optimizer(block.parameters(), {.lr = 0.1, .weight_decay = 0.5});
    block.mlp.net1.weight.set_requires_grad(false);
    const DTensor x = distribute_tensor(random(world, {2, 4, 10}), mesh, Shard(1));
    co_await learn(block, x);
    co_await optimizer.step();
    EXPECT_EQ(full_tensor(block.mlp.net1.weight.detach()).to_vector(), before);
    EXPECT_NE(full_tensor(block.mlp.net2.weight.detach()).to_vector(), other);
  });
}

// Stack Overflow 60335387: zero_grad was forgotten. Told where gradients have been summed.
TEST(TrainCheckList, AStepWithoutZeroGradOverReplicas) {
  on_ranks(2, [](World& world) -> Task<void> {
    Mlp mlp(world);
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"dp"});
    const DataParallel replicas(mlp.parameters(), mesh, 0, {.reduce = Reduce::Sum});
    co_await one_step(mlp, random(world, {4, 10}));
    const End end = co_await end_of(one_step(mlp, random(world, {4, 10})));
    expect_told(end, "zero_grad");
  });
}

// accelerate#2665: the optimizer held the parameters from before sharding.
TEST(TrainCheckList, AnOptimizerThatWasMadeBeforeParametersWereSharded) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"dp"});
    Mlp mlp(world);
    SGD optimizer(mlp.parameters(), {.lr = 0.1});
    fully_shard(mlp, mesh);
    co_await learn(mlp, random(world, {4, 10}));
    const End end = co_await end_of(optimizer.step());
    expect_told(end, "fully_shard");
  });
}

// pytorch#104336: parameters were replaced under DistributedDataParallel, which reduced no more.
TEST(TrainCheckList, ReplicasWhoseParametersWereReplacedSince) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    Mlp mlp(world);
    const DataParallel replicas(mlp.parameters(), mesh, 0);
    ParallelPlan plan;
    plan["net1"] = ColwiseParallel{};
    plan["net2"] = RowwiseParallel{};
    const auto train = [&]() -> Task<void> {
      co_await parallelize_module(mlp, mesh["tp"], plan);
      co_await one_step(mlp, random(world, {4, 10}));
    };
    const End end = co_await end_of(train());
    expect_told(end, "DataParallel");
  });
}

// "DDP out of sync" (x.com/jxmnop): a model was wrapped anew in every run.
TEST(TrainCheckList, ReplicasThatAreWrappedTwice) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"dp"});
    Mlp mlp(world);
    const DataParallel first(mlp.parameters(), mesh, 0);
    const std::string text = error_text(
        ErrorKind::BadInput, [&] { const DataParallel second(mlp.parameters(), mesh, 0); });
    EXPECT_CONTAINS(text, "DataParallel");
    co_return;
  });
}
// The same report: a run was not wrapped at all. Known where the batch is one.
TEST(TrainCheckList, ReplicasThatNobodyReducesOnPartsOfABatch) {
  const auto program = [](bool wrapped) {
    return [wrapped](World& world) -> Task<void> {
      const DeviceMesh mesh = init_device_mesh(world, {2}, {"dp"});
      auto [plain, mlp] = twins<Mlp>(world);
      std::optional<DataParallel> replicas;
      if (wrapped) replicas.emplace(mlp->parameters(), mesh, 0);
      const Tensor x = random(world, {4, 10});
      const DTensor rows = distribute_tensor(x, mesh, Shard(0));
      co_await one_step(*mlp, rows.to_local());
      log_along(mesh);
      co_await one_step(*plain, x);
      expect_same(*mlp, *plain);
    };
  };
  for (const End& end : ends_of(quick_options(2), program(true))) EXPECT_FALSE(end.failed) << end;
  expect_all_told(2, program(false), "net1.weight");
}
TEST(TrainCheckList, ReplicasThatNobodyReducesOnADeclaredBatch) {
  const auto program = [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"dp"});
    Mlp mlp(world);
    const Tensor own = add(random(world, {4, 10}), world.rank());  // of a loader
    varies(own, mesh, 0);
    co_await one_step(mlp, own);
    log_along(mesh);
  };
  expect_all_told(2, program, "net1.weight");
}

// Stack Overflow 67180955, from the other side: what ranks should read, or draw, alike, each reads
// or draws for itself.
TEST(TrainCheckList, ABatchThatEachRankOfTensorParallelismHasForItself) {
  for (const bool drops : {false, true})
    on_ranks(2, [drops](World& world) -> Task<void> {
      Mlp mlp(world);
      ParallelPlan plan;
      plan["net1"] = ColwiseParallel{};
      plan["net2"] = RowwiseParallel{};
      co_await parallelize_module(mlp, line(world), plan);
      const Tensor x = random(world, {4, 10});
      Tensor mine;
      {
        const LocalRandom own;
        mine = drops ? dropout(x, 0.5) : random(world, {4, 10});
      }
      const End end = co_await end_of(one_step(mlp, mine));
      expect_told(end, "net1", ErrorKind::CommFailed);
    });
}
// Elements are drawn by their place in the whole batch.
TEST(TrainCheckList, DropoutOfShardsIsThatOfTheWholeBatch) {
  on_ranks(4, [](World& world) -> Task<void> {
    const Tensor x = random(world, {8, 10});
    const RandomState state = random_state();
    const Tensor want = dropout(x, 0.5);
    set_random_state(state);
    const Tensor got = dropout(distribute_tensor(x, line(world), Shard(0)), 0.5);
    expect_close(got, want);
    co_return;
  });
}

// transformers#33844: dropout went on in evaluation.
TEST(TrainCheckList, DropoutEndsWithTraining) {
  on_ranks(2, [](World& world) -> Task<void> {
    nn::TransformerConfig config = tiny_transformer();
    config.dropout = 0.5;
    nn::Transformer model(config, world);
    co_await parallelize_module(model, line(world), nn::transformer_plan(false));
    const Tensor tokens = integers(world, {2, 8}, 32);
    const Tensor one = co_await model.forward(tokens);
    const Tensor two = co_await model.forward(tokens);
    EXPECT_NE(full_tensor(one.detach()).to_vector(), full_tensor(two.detach()).to_vector());
    model.train(false);
    const Tensor three = co_await model.forward(tokens);
    const Tensor four = co_await model.forward(tokens);
    expect_close(three.detach(), full_tensor(four.detach()), 0);
  });
}

// pytorch#84803, pytorch#96600, Baichuan2#86: what one rank receives arrives as zeros.
Task<void> lose_a_gradient(World& world, Module& model, Tensor x, const Tensor& parameter) {
  SGD optimizer(model.parameters(), {.lr = 0.1});
  Task<void> learnt = learn(model, std::move(x));
  co_await std::move(learnt);
  Task<void> reduced = reduce_gradients(model.parameters());
  co_await std::move(reduced);
  if (world.rank() == 1) {
    const NoGradGuard quiet;
    fill_(parameter.grad().to_local(), 0);
  }
  Task<void> stepped = optimizer.step();
  co_await std::move(stepped);
}
TEST(TrainCheckList, AGradientThatOneRankGetsAsZeros) {
  on_ranks(2, [](World& world) -> Task<void> {
    Block block(world);
    const DeviceMesh mesh = line(world);
    co_await parallelize(block, mesh);
    const DTensor x = distribute_tensor(random(world, {2, 4, 10}), mesh, Shard(1));
    const End end = co_await end_of(lose_a_gradient(world, block, x, block.norm.weight));
    expect_told(end, "norm.weight");
  });
}

// DeepSpeed#5794: ranks with unlike numbers of tokens called unlike collectives, and hung.
TEST(TrainCheckList, RanksThatCallUnlikeCollectives) {
  const auto program = [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    const std::int64_t tokens = world.rank() == 0 ? 4 : 6;
    const DTensor x = ones(mesh, Shard(0), {tokens, 2}, F64);
    co_await x.redistribute(Shard(1));
  };
  for (const End& end : ends_of(quick_options(2), program)) {
    EXPECT_TRUE(end.is(ErrorKind::CommFailed)) << end;
    EXPECT_TRUE(end.names("ranks disagree")) << end;
  }
}

// On no list, as no report is needed: a layer that no optimizer knows, a weight in two places.
struct Forgets : Module {
  explicit Forgets(World& world) : known(10, 10, world, kF64), hidden(world) {
    register_module("known", known);
  }
  Task<Tensor> run(Tensor x) override {
    const Tensor y = co_await known.forward(std::move(x));
    co_return co_await hidden.forward(y);
  }
  nn::Linear known;
  Mlp hidden;
};
TEST(CommonList, ALayerThatNoOptimizerKnows) {
  on_ranks(2, [](World& world) -> Task<void> {
    Forgets model(world);
    const End end = co_await end_of(one_step(model, random(world, {4, 10})));
    expect_told(end, "Forgets");
    EXPECT_TRUE(end.names("Mlp")) << end;
  });
}

struct Tied : Module {
  explicit Tied(World& world)
      : words(12, 6, world, kEmbeddingF64), output(6, 12, world, {.bias = false, .dtype = F64}) {
    output.weight = words.weight;
    register_module("words", words);
    register_module("output", output);
  }
  Task<Tensor> run(Tensor ids) override {
    const Tensor x = co_await words.forward(std::move(ids));
    co_return co_await output.forward(x);
  }
  nn::Embedding words;
  nn::Linear output;
};
TEST(CommonList, AWeightInTwoPlacesIsClippedAndSteppedOnce) {
  on_ranks(2, [](World& world) -> Task<void> {
    auto [plain, tied] = twins<Tied>(world);
    ParallelPlan plan;
    plan["words"] = RowwiseParallel{.input_layouts = Replicate()};
    plan["output"] = ColwiseParallel{.use_local_output = false};
    co_await parallelize_module(*tied, line(world), plan);
    const Tensor ids = integers(world, {5}, 12);
    co_await learn(*plain, ids);
    co_await learn(*tied, ids);
    const std::vector<Tensor> alone{plain->words.weight};
    const std::vector<Tensor> twice{tied->words.weight, tied->output.weight};
    const double want = co_await clipped_norm(alone, 0.1);
    const double norm = co_await clipped_norm(twice, 0.1);
    EXPECT_NEAR(norm, want, 1e-10);
    SGD one(alone, {.lr = 0.1}), both(twice, {.lr = 0.1});
    co_await one.step();
    co_await both.step();
    expect_same(*tied, *plain);
  });
}

}  // namespace
}  // namespace traincheck_list
}  // namespace coshard::testing
