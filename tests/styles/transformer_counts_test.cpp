// The collectives of the two-layer transformer of PyTorch's test_tp_examples.py.
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

constexpr std::int64_t kVocab = 8, kSeq = 8, kDim = 16, kHeads = 4;

struct FeedForward : Module {
  explicit FeedForward(World& world)
      : w1(kDim, 4 * kDim, world, kF64), w2(4 * kDim, kDim, world, kF64) {
    register_module("w1", w1);
    register_module("w2", w2);
  }
  Task<Tensor> run(Tensor x) override {
    Tensor h = co_await w1.forward(std::move(x));
    co_return co_await w2.forward(gelu(h));
  }
  nn::Linear w1, w2;
};

struct Block : Module {
  explicit Block(World& world)
      : attention_norm(kDim, world, {.dtype = DType::F64}),
        attention(
            {.dim = kDim, .heads = kHeads, .rotary = false, .causal = false, .dtype = DType::F64},
            world),
        ffn_norm(kDim, world, {.dtype = DType::F64}),
        feed_forward(world) {
    register_module("attention_norm", attention_norm);
    register_module("attention", attention);
    register_module("ffn_norm", ffn_norm);
    register_module("feed_forward", feed_forward);
  }
  Task<Tensor> run(Tensor x) override {
    Tensor h = co_await attention_norm.forward(x);
    h = co_await attention.forward(std::move(h));
    x = x + h;
    h = co_await ffn_norm.forward(x);
    h = co_await feed_forward.forward(std::move(h));
    co_return x + h;
  }
  nn::LayerNorm attention_norm;
  nn::Attention attention;
  nn::LayerNorm ffn_norm;
  FeedForward feed_forward;
};

struct Model : Module {
  explicit Model(World& world)
      : tok_embeddings(kVocab, kDim, world, kEmbeddingF64),
        pos_embeddings(kSeq, kDim, world, kEmbeddingF64),
        norm(kDim, world, {.dtype = DType::F64}),
        output(kDim, kVocab, world, {.bias = false, .dtype = DType::F64}) {
    register_module("tok_embeddings", tok_embeddings);
    register_module("pos_embeddings", pos_embeddings);
    for (int i = 0; i < 2; ++i) layers.append(std::make_shared<Block>(world));
    register_module("layers", layers);
    register_module("norm", norm);
    register_module("output", output);
    output.weight = tok_embeddings.weight;
    std::vector<double> positions;
    for (int i = 0; i < kSeq; ++i) positions.push_back(i);
    positions_ = Tensor::from_values(world.device(), Shape{kSeq}, DType::I64, positions);
  }
  Task<Tensor> run(Tensor ids) override {
    Tensor h = co_await tok_embeddings.forward(std::move(ids));
    const Tensor p = co_await pos_embeddings.forward(positions_);
    h = h + p;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      Task<Tensor> block = layers[i].forward(std::move(h));
      h = co_await std::move(block);
    }
    h = co_await norm.forward(std::move(h));
    co_return co_await output.forward(std::move(h));
  }
  nn::Embedding tok_embeddings, pos_embeddings;
  ModuleList<Block> layers;
  nn::LayerNorm norm;
  nn::Linear output;

 private:
  Tensor positions_;
};

ParallelPlan plan_of(bool sequence_parallel) {  // A109
  const Placement between = sequence_parallel ? Shard(1) : Replicate();
  const Placement positions = sequence_parallel ? Shard(0) : Replicate();
  ParallelPlan plan;
  plan["tok_embeddings"] = RowwiseParallel{.input_layouts = Replicate(), .output_layouts = between};
  plan["pos_embeddings"] =
      RowwiseParallel{.input_layouts = Replicate(), .output_layouts = positions};
  if (sequence_parallel) {
    plan["norm"] = SequenceParallel{};
    plan["layers.*.attention_norm"] = SequenceParallel{};
    plan["layers.*.ffn_norm"] = SequenceParallel{};
    plan["layers.*.attention"] =
        PrepareModuleInput{.input_layouts = Shard(1), .desired_input_layouts = Replicate()};
  }
  plan["layers.*.attention.w[qkv]"] = ColwiseParallel{};
  plan["layers.*.attention.wo"] = RowwiseParallel{.output_layouts = between};
  plan["layers.*.feed_forward.w1"] = ColwiseParallel{.input_layouts = between};
  plan["layers.*.feed_forward.w2"] = RowwiseParallel{.output_layouts = between};
  plan["output"] = ColwiseParallel{.input_layouts = between, .output_layouts = Replicate()};
  return plan;
}

struct Step {
  Issued forward, backward, optimizer;
  double loss = 0;
};

Task<Step> train_step(World& world, Module& model, Optimizer& optimizer, Tensor ids,
                      Tensor targets) {
  Step step;
  CountingObserver counter(world);
  const Tensor logits = co_await model.forward(ids);
  step.forward = take(counter);
  const Tensor loss = cross_entropy_rows(logits, targets);
  step.loss = loss.item();
  co_await backward(loss);
  step.backward = take(counter);
  co_await optimizer.step();
  step.optimizer = take(counter);
  optimizer.zero_grad();
  co_return step;
}

// Two steps with and without a plan: losses and parameters agree; returns what the first parallel
// step issued.
Task<Step> compare(World& world, bool sequence_parallel, std::vector<std::string> trained = {}) {
  const DeviceMesh mesh = line(world);
  auto [plain, model] = twins<Model>(world);
  for (Model* each : {plain.get(), model.get()}) {
    if (trained.empty()) continue;
    for (const NamedParameter& p : each->named_slots()) p.slot->set_requires_grad(false);
    for (const std::string& name : trained)
      for (const NamedParameter& p : each->find(name)->named_slots())
        p.slot->set_requires_grad(true);
  }
  co_await parallelize_module(*model, mesh, plan_of(sequence_parallel));
  EXPECT_EQ(model->output.weight.id(), model->tok_embeddings.weight.id());
  SGD reference(plain->parameters(), {.lr = 0.25}), optimizer(model->parameters(), {.lr = 0.25});
  const Tensor ids = integers(world, Shape{8, kSeq}, kVocab),
               targets = integers(world, Shape{8, kSeq}, 5);
  Step first;
  for (int i = 0; i < 2; ++i) {
    const Step want = co_await train_step(world, *plain, reference, ids, targets);
    const Step got = co_await train_step(world, *model, optimizer, ids, targets);
    EXPECT_NEAR(got.loss, want.loss, 1e-10);
    if (i == 0) first = got;
  }
  for (const NamedParameter& p : model->named_parameters())
    expect_close(*p.slot, plain->parameter(p.name));
  co_return first;
}

TEST(TransformerCounts, WithoutSequenceParallel) {  // A105
  on_ranks(4, [](World& world) -> Task<void> {
    const Step step = co_await compare(world, false);
    EXPECT_EQ(step.forward, (Issued{.all_reduce = 6, .all_gather = 1}));
    EXPECT_EQ(step.backward, Issued{.all_reduce = 9});
    EXPECT_EQ(step.optimizer, Issued{});
  });
}

TEST(TransformerCounts, WithSequenceParallelTheNormsGradientsAreOneAllReduce) {  // A106
  on_ranks(4, [](World& world) -> Task<void> {
    const Step step = co_await compare(world, true);
    EXPECT_EQ(step.forward, (Issued{.all_gather = 6, .reduce_scatter = 6}));
    EXPECT_EQ(step.backward, (Issued{.all_gather = 6, .reduce_scatter = 5}));
    EXPECT_EQ(step.optimizer, Issued{.all_reduce = 1});
  });
}

TEST(TransformerCounts, BackwardStopsWhereNothingIsTrained) {  // A107
  on_ranks(4, [](World& world) -> Task<void> {
    const std::vector<std::string> tied = {"tok_embeddings", "output"};
    const Step embeddings = co_await compare(world, true, tied);
    EXPECT_EQ(embeddings.backward, (Issued{.all_gather = 5, .reduce_scatter = 5}));
    EXPECT_EQ(embeddings.optimizer, Issued{});
    const std::vector<std::string> norms = {"norm", "layers.0.ffn_norm"};
    const Step two = co_await compare(world, true, norms);
    EXPECT_EQ(two.optimizer, Issued{.all_reduce = 1});
    EXPECT_LE(two.backward.reduce_scatter, 5);
  });
}

}  // namespace
}  // namespace coshard::testing
