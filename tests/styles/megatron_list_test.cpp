// The bugs of Megatron-LM#7452 as programs: what the same mistake does here, or what is right here
// without asking. Numbers are those of the report. 12 is about checkpoints; 5, 6 and 13 were not at
// hand.
#include "tests/styles/field_lists.h"

namespace coshard::testing {
namespace megatron_list {
namespace {

constexpr DType F64 = DType::F64;

// The loss by its formula: the smoothing term is a mean over all classes.
Tensor smoothed(const Tensor& logits, const Tensor& targets, double part) {
  const Tensor log_probs = log_softmax(logits, 1);
  return sub(mul(nll_loss(log_probs, targets), 1 - part), mul(mean(log_probs), part));
}

// 1. Each rank smoothed over its own part of the vocabulary.
TEST(MegatronList, LabelSmoothingOverAShardOfTheVocabulary) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    const Tensor values = random(world, {6, 9}), targets = integers(world, {6}, 9);
    const Tensor plain = leaf(values);
    const Tensor want = smoothed(plain, targets, 0.1);
    co_await backward(want);
    for (const bool by_hand : {false, true}) {
      const DTensor logits = leaf(values, mesh, Shard(1));
      Tensor loss;
      if (by_hand) {
        loss = smoothed(logits, distribute_tensor(targets, mesh, Replicate()), 0.1);
      } else {
        const LossParallelOptions options{.label_smoothing = 0.1};
        loss = co_await loss_parallel_cross_entropy(logits, targets, options);
      }
      co_await backward(loss);
      expect_close(loss, want.detach());
      expect_close(logits.grad(), plain.grad());
    }
  });
}

// 2. A loss for sharded logits was given gathered ones: off by the logarithm of tp.
TEST(MegatronList, GatheredLogitsInALossForShards) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    const Tensor values = random(world, {6, 8}), targets = integers(world, {6}, 8);
    const DTensor gathered = leaf(values, mesh, Replicate());
    const End end = co_await end_of(discard(loss_parallel_cross_entropy(gathered, targets)));
    expect_told(end, "f64[6,8] R");
    // Gathered and plain, they are what they look like.
    const Tensor plain = leaf(values), local = leaf(values);
    const Tensor want = cross_entropy_rows(plain, targets);
    co_await backward(want);
    const Tensor loss = co_await loss_parallel_cross_entropy(local, targets);
    co_await backward(loss);
    expect_close(loss, want.detach());
    expect_close(local.grad(), plain.grad());
  });
}

// Rows (or positions) of which rank 0 has one valid target and rank 1 has three.
Tensor uneven_targets(World& world, const Shape& shape) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < numel(shape); ++i)
    values.push_back(i % 8 == 1 || i % 8 > 4 ? 2 : -100);
  return Tensor::from_values(world.device(), shape, DType::I64, values);
}

Task<void> expect_a_mean_of_all_targets(World& world, Shape shape, int dim) {
  const DeviceMesh mesh = line(world);
  auto [plain, linear] = twins<nn::Linear>(3, 5, world, kF64);
  distribute_module(*linear, mesh);
  const Tensor targets = uneven_targets(world, shape);
  Shape wide = shape;
  wide.push_back(3);
  const Tensor x = random(world, wide);
  Task<Tensor> alone = plain->forward(x);
  const Tensor whole = co_await std::move(alone);
  const Tensor want = cross_entropy_rows(whole, targets);
  co_await backward(want);
  Task<Tensor> forward = linear->forward(distribute_tensor(x, mesh, Shard(dim)));
  const Tensor logits = co_await std::move(forward);
  const Tensor loss = cross_entropy_rows(logits, distribute_tensor(targets, mesh, Shard(dim)));
  co_await backward(loss);
  expect_close(loss, want.detach());
  expect_same(*linear, *plain);
}

// 3 and 9. Losses were divided by a rank's own number of valid tokens, then averaged over ranks.
TEST(MegatronList, AMeanOverUnevenlyMaskedRowsOfReplicas) {
  on_ranks(2, [](World& world) -> Task<void> {
    Task<void> rows = expect_a_mean_of_all_targets(world, {8}, 0);
    co_await std::move(rows);
  });
}
TEST(MegatronList, AMeanOverAnUnevenlyMaskedSequence) {
  on_ranks(2, [](World& world) -> Task<void> {
    Task<void> sequence = expect_a_mean_of_all_targets(world, {2, 8}, 1);
    co_await std::move(sequence);
  });
}

// 4. Recomputation gathered activations over another group than the model's.
TEST(MegatronList, RecomputationWithinOneSliceOfTheMesh) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    auto [plain, mlp] = twins<Mlp>(world);
    const ParallelPlan plan = [] {
      ParallelPlan made;
      made["net1"] = ColwiseParallel{.input_layouts = Shard(0)};
      made["net2"] = RowwiseParallel{.output_layouts = Shard(0)};
      return made;
    }();
    co_await parallelize_module(*mlp, mesh["tp"], plan);
    mlp->set_recompute();
    const Tensor x = add(random(world, {4, 10}), mesh.local_rank("dp"));  // a replica's own
    const DTensor rows = distribute_tensor(x, mesh["tp"], Shard(0));
    Task<Tensor> forward = mlp->forward(rows.to_local());
    const Tensor mine = co_await std::move(forward);
    const DTensor y = from_local(mine, mesh["tp"], Shard(0));
    const Tensor loss = mean(mul(y, y));
    co_await backward(loss);
    co_await learn(*plain, x);
    expect_same(*mlp, *plain);
  });
}

// 4 to 7. What lay on the global group met what lies on the model's own.
TEST(MegatronList, ActivationsAndWeightsOnDifferentGroups) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"outer", "inner"});
    const Tensor values = random(world, {4, 4, 6});
    const DTensor x = distribute_tensor(values, mesh["outer"], Shard(1));
    const DTensor w = distribute_tensor(random(world, {6, 6}), mesh["inner"], Replicate());
    std::string text = error_text(ErrorKind::BadInput, [&] { static_cast<void>(matmul(x, w)); });
    EXPECT_CONTAINS(text, "outer=2");
    EXPECT_CONTAINS(text, "inner=2");
    nn::Linear linear(6, 6, world, kF64);
    co_await parallelize_module(linear, mesh["inner"], ColwiseParallel{});
    const End sharded = co_await end_of(discard(linear.forward(x)));
    expect_told(sharded, "outer");
    nn::LayerNorm norm(6, world, {.dtype = F64});
    co_await parallelize_module(norm, mesh["inner"], SequenceParallel{});
    const End scattered = co_await end_of(discard(norm.forward(x)));
    expect_told(scattered, "outer");
  });
}

// The same by hand: as local shards, nothing but the other dimension shows it.
TEST(MegatronList, ShardsOfOneGroupThatAreTakenForShardsOfAnother) {
  const auto program = [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"outer", "inner"});
    nn::LayerNorm norm(6, world, {.dtype = F64});
    co_await parallelize_module(norm, mesh["inner"], SequenceParallel{});
    const DTensor x = distribute_tensor(random(world, {4, 4, 6}), mesh["outer"], Shard(1));
    co_await one_step(norm, x.to_local());
    log_along(mesh);
  };
  expect_all_told(4, program, "weight");
  expect_all_told(4, program, "outer");
}

// One number per head, of which each rank has its own heads.
Tensor weighed(const Tensor& x, const Tensor& sinks) { return mul(x, sigmoid(sinks)); }

Task<double> norm_on_one_device(const Tensor& x, const Tensor& sinks) {
  const Tensor y = weighed(x, sinks);
  const Tensor loss = mean(mul(y, y));
  Task<void> walk = backward(loss);
  co_await std::move(walk);
  Task<double> norm = clipped_norm({sinks}, 1e-3);
  const double value = co_await std::move(norm);
  co_return value;
}

// Plain sinks on every rank, `own` or the same by chance.
Task<double> norm_of_plain_sinks(World& world, Tensor x, Tensor sinks, bool declared) {
  const DeviceMesh mesh = line(world);
  if (declared) varies(sinks, mesh, 0);
  const DTensor heads = distribute_tensor(x, mesh, Shard(1));
  const DTensor y = from_local(weighed(heads.to_local(), sinks), mesh, Shard(1));
  const Tensor loss = mean(mul(y, y));
  Task<void> walk = backward(loss);
  co_await std::move(walk);
  Task<double> norm = clipped_norm({sinks}, 1e-3);
  const double value = co_await std::move(norm);
  co_return value;
}

// 8. Sinks that each rank has for its own heads were left out of the clipping norm.
TEST(MegatronList, AttentionSinksAsShardsCountOnceInTheNorm) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    const Tensor x = random(world, {3, 4}), values = random(world, {4});
    const Tensor plain = leaf(values);
    const double want = co_await norm_on_one_device(x, plain);
    const DTensor sinks = leaf(values, mesh, Shard(0));
    const double norm = co_await norm_on_one_device(distribute_tensor(x, mesh, Shard(1)), sinks);
    EXPECT_NEAR(norm, want, 1e-12);
    expect_close(sinks.grad(), plain.grad());
  });
}
TEST(MegatronList, PlainAttentionSinksOfOwnHeadsAreAllInTheNorm) {
  for (const bool equal : {false, true})
    on_ranks(2, [equal](World& world) -> Task<void> {
      const Tensor x = random(world, {3, 4});
      const Tensor values = mul(random(world, {4}), equal ? 0 : 1);
      const Tensor plain = leaf(values);
      const double want = co_await norm_on_one_device(x, plain);
      const Tensor own = leaf(part(world, values, 0));
      const double norm = co_await norm_of_plain_sinks(world, x, own, true);
      EXPECT_NEAR(norm, want, 1e-12);
      expect_close(own.grad(), part(world, plain.grad(), 0));
    });
}
// Equal at the start, and not declared: taken for replicas.
TEST(MegatronList, PlainAttentionSinksThatStartAtZeroAreToBeDeclared) {
  const auto program = [](World& world) -> Task<void> {
    const Tensor x = random(world, {3, 4});
    const Tensor own = leaf(zeros(world.device(), {2}, F64));
    co_await norm_of_plain_sinks(world, x, own, false);
    log_along(line(world));
  };
  expect_all_told(2, program, "varies");
}

// 10. A count was reduced in place, and then taken for this rank's own.
TEST(MegatronList, CountsOfExpertsAreNotOverwrittenByTheirSum) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    const Tensor mine = full(world.device(), {4}, world.rank() + 1, F64);
    const DTensor total = co_await from_local(mine, mesh, Partial()).redistribute(Replicate());
    EXPECT_EQ(total.to_vector(), std::vector<double>(4, 3));
    EXPECT_EQ(mine.to_vector(), std::vector<double>(4, world.rank() + 1));
  });
}

// How often an expert was chosen, times its mean probability.
Tensor balance(const Tensor& x, const Tensor& gate, const Tensor& chosen) {
  const Tensor probabilities = softmax(matmul(x, gate), 1);
  return sum(mul(mean(chosen, {0}), mean(probabilities, {0})));
}
TEST(MegatronList, TheBalanceOfExpertsIsThatOfAllTokens) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    const Tensor x = random(world, {8, 3}), values = random(world, {3, 4});
    const Tensor chosen = integers(world, {8, 4}, 2).to(F64);
    const Tensor plain = leaf(values);
    const Tensor want = balance(x, plain, chosen);
    co_await backward(want);
    const DTensor gate = leaf(values, mesh, Replicate());
    const Tensor loss = balance(distribute_tensor(x, mesh, Shard(0)), gate,
                                distribute_tensor(chosen, mesh, Shard(0)));
    co_await backward(loss);
    expect_close(loss, want.detach());
    expect_close(gate.grad(), plain.grad());
  });
}

// Up, a norm of each head, down.
struct Heads : Module {
  explicit Heads(World& world)
      : up(8, 16, world, kF64), norm(4, world, {.dtype = F64}), down(16, 8, world, kF64) {
    register_module("up", up);
    register_module("norm", norm);
    register_module("down", down);
  }
  Task<Tensor> run(Tensor x) override {
    const Tensor hidden = co_await up.forward(std::move(x));
    Tensor heads = hidden.view({hidden.size(0), hidden.size(1) / 4, 4});
    const Tensor normed = co_await norm.forward(std::move(heads));
    co_return co_await down.forward(normed.reshape(hidden.shape()));
  }
  nn::Linear up;
  nn::RMSNorm norm;
  nn::Linear down;
};

ParallelPlan plan_without_norm() {
  ParallelPlan plan;
  plan["up"] = ColwiseParallel{};
  plan["down"] = RowwiseParallel{};
  return plan;
}

// 11. A norm between sharded projections has one weight for all, whose gradients nobody added up.
TEST(MegatronList, ANormBetweenShardedProjectionsThatStaysPlain) {
  for (const bool clip : {false, true})
    expect_all_told(
        2,
        [clip](World& world) -> Task<void> {
          Heads model(world);
          co_await parallelize_module(model, line(world), plan_without_norm());
          for (int step = 0; step < 2; ++step)
            co_await one_step(model, random(world, {4, 8}), clip);
        },
        "norm.weight");
}
TEST(MegatronList, ANormBetweenShardedProjectionsWhoseGradientIsSummed) {
  for (const bool styled : {false, true})
    on_ranks(2, [styled](World& world) -> Task<void> {
      const DeviceMesh mesh = line(world);
      auto [plain, model] = twins<Heads>(world);
      ParallelPlan plan = plan_without_norm();
      if (styled)  // cut by heads
        plan["norm"] = SequenceParallel{.sequence_dim = 1, .use_local_output = true};
      co_await parallelize_module(*model, mesh, plan);
      const Tensor x = random(world, {4, 8});
      co_await learn(*plain, x);
      co_await learn(*model, x);
      if (!styled) all_reduce_gradients({model->norm.weight}, mesh, 0);
      const double want = co_await clipped_norm(plain->parameters(), 0.01);
      const double norm = co_await clipped_norm(model->parameters(), 0.01);
      EXPECT_NEAR(norm, want, 1e-10);
      expect_same(*model, *plain);
      SGD optimizer(model->parameters(), {.lr = 0.1});
      co_await optimizer.step();
    });
}

// Mended in the wrong way: averaged over tp, or summed over another dimension alone.
Task<void> reduce_wrongly(World& world, Heads& model, bool average) {
  const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
  Task<void> done = parallelize_module(model, mesh["tp"], plan_without_norm());
  co_await std::move(done);
  SGD optimizer(model.parameters(), {.lr = 0.1});
  Task<void> learnt = learn(model, random(world, {4, 8}));
  co_await std::move(learnt);
  all_reduce_gradients(model.parameters(), mesh, 0, Reduce::Avg);
  if (average) all_reduce_gradients({model.norm.weight}, mesh, 1, Reduce::Avg);
  Task<void> stepped = optimizer.step();
  co_await std::move(stepped);
  log_along(mesh);
}
TEST(MegatronList, ANormBetweenShardedProjectionsThatIsReducedWrongly) {
  const auto program = [](bool average) {
    return [average](World& world) -> Task<void> {
      Heads model(world);
      co_await reduce_wrongly(world, model, average);
    };
  };
  expect_all_told(4, program(false), "norm.weight");
  // The average is equal on all ranks, and may be meant: the loss may have been scaled.
  ::testing::internal::CaptureStderr();
  for (const End& end : ends_of(quick_options(4), program(true))) EXPECT_FALSE(end.failed) << end;
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(said.find("norm.weight") != std::string::npos &&
              said.find("Reduce::Sum") != std::string::npos)
      << said;
}
// Used on shards and on what all ranks have: no sum of its gradient is right.
TEST(MegatronList, ANormThatIsUsedOnShardsAndOnReplicas) {
  on_ranks(2, [](World& world) -> Task<void> {
    Heads model(world);
    const DeviceMesh mesh = line(world);
    co_await parallelize_module(model, mesh, plan_without_norm());
    SGD optimizer(model.parameters(), {.lr = 0.1});
    const auto train = [&]() -> Task<void> {
      const Tensor y = co_await model.forward(random(world, {4, 8}));
      const Tensor z = co_await model.norm.forward(random(world, {4, 4}));
      co_await backward(add(mean(mul(y, y)), mean(mul(z, mul(z, z)))));
      all_reduce_gradients({model.norm.weight}, mesh, 0);
      co_await optimizer.step();
    };
    const End end = co_await end_of(train());
    expect_told(end, "norm.weight");
  });
}

}  // namespace
}  // namespace megatron_list
}  // namespace coshard::testing
