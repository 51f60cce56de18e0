// Refusals that name what to do: each is followed, and gives the right result.
#include <coshard/styles/fully_shard.h>
#include <coshard/styles/loss_parallel.h>
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

std::string remedy_of_run(int ranks, const Program& program) {
  WorldOptions options = test_options(ranks);
  std::string line;
  options.on_failure = [&](const Failure& failure) { line = failure.line(); };
  try {
    run_ranks(options, program);
  } catch (const Error&) {
  }
  return line;
}

nn::CausalLMConfig llama_of(std::int64_t key_heads) {
  return {.vocab_size = 17,
          .hidden_size = 16,
          .intermediate_size = 12,
          .num_hidden_layers = 2,
          .num_attention_heads = 4,
          .num_key_value_heads = key_heads,
          .dtype = DType::F64};
}

// Projections that stay DTensors, of which attention gathers the heads that it lacks.
TEST(Remedies, HeadsMayStayDTensors) {
  for (const bool sequence : {false, true})
    for (const std::int64_t heads : {1, 2, 4})
      on_ranks(4, [=](World& world) -> Task<void> {
        const DeviceMesh mesh = line(world);
        auto [plain, model] = twins<nn::CausalLM>(llama_of(heads), world);
        ParallelPlan plan = nn::causal_lm_plan(sequence);
        plan["model.layers.*.self_attn.[qkv]_proj"] = ColwiseParallel{.use_local_output = false};
        co_await parallelize_module(*model, mesh, plan);
        const Tensor ids = integers(world, Shape{2, 8}, 17);
        Tensor want = co_await plain->forward(ids);
        Tensor got = co_await model->forward(ids);
        expect_close(got, want);
        const Tensor wanted_loss = sum(want * want), loss = sum(got * got);
        co_await backward(wanted_loss);
        co_await backward(loss);
        for (const NamedParameter& p : model->named_parameters())
          expect_close(p.slot->grad(), plain->parameter(p.name).grad(), 1e-9);
      });
}

struct OddSequence : nn::Sequential {
  explicit OddSequence(World& world) {
    add<nn::Linear>("up", 4, 8, world, kF64);
    add<nn::Linear>("down", 8, 4, world, kF64);
    add<nn::LayerNorm>("norm", 4, world, nn::LayerNormOptions{.dtype = DType::F64});
  }
  static ParallelPlan plan(bool local) {
    ParallelPlan plan;
    plan["up"] = ColwiseParallel{};
    plan["down"] = RowwiseParallel{.output_layouts = Shard(1), .use_local_output = local};
    plan["norm"] = SequenceParallel{};
    return plan;
  }
};

TEST(Remedies, AnOddSequenceStaysADTensor) {
  const std::string text = remedy_of_run(2, [](World& world) -> Task<void> {
    OddSequence model(world);
    co_await parallelize_module(model, line(world), OddSequence::plan(true));
    const Tensor x = random(world, Shape{2, 7, 4});
    const Tensor y = co_await model.forward(x);
    co_await y.redistribute(Replicate());
  });
  EXPECT_CONTAINS(text, "LayerNorm 'norm' on local shards");
  EXPECT_CONTAINS(text, "use_local_output = false");
  on_ranks(2, [](World& world) -> Task<void> {
    auto [plain, model] = twins<OddSequence>(world);
    co_await parallelize_module(*model, line(world), OddSequence::plan(false));
    const Tensor x = random(world, Shape{2, 7, 4});
    Tensor want = co_await plain->forward(x);
    Tensor got = co_await model->forward(x);
    EXPECT_EQ(got.layout(), Layout(Shard(1)));
    expect_close(got, want);
  });
}

TEST(Remedies, APartOfAShardedModuleIsCalledThroughIt) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"dp"});
    auto [plain, model] = twins<nn::CausalLM>(llama_of(4), world);
    fully_shard(*model, mesh);
    const Tensor ids = integers(world, Shape{1, 3}, 17);
    const std::string text = co_await error_of(discard(model->model.forward(ids)));
    EXPECT_CONTAINS(text, "shard of a parameter");
    EXPECT_CONTAINS(text, "call the module that fully_shard was given");
    Tensor want = co_await plain->forward(ids);
    Tensor got = co_await model->forward(ids);
    expect_close(got, want);
    auto [other, inner] = twins<nn::CausalLM>(llama_of(4), world);
    fully_shard(inner->model, mesh);
    fully_shard(*inner, mesh);
    want = co_await other->model.forward(ids);
    got = co_await inner->model.forward(ids);
    expect_close(got, want);
  });
}

struct Scaled : Module {
  Scaled(World& world, const Shape& shape) : scale(full(world.device(), shape, 2, DType::F64)) {
    scale.set_requires_grad(true);
    register_parameter("scale", scale);
  }
  Task<Tensor> run(Tensor x) override { co_return x* scale; }
  Tensor scale;
};

TEST(Remedies, AScaleOfOneElementIsSharded) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"dp"});
    Scaled scalar(world, Shape());
    std::string text;
    try {
      fully_shard(scalar, mesh);
    } catch (const Error& error) {
      text = error.what();
    }
    EXPECT_CONTAINS(text, "'scale'");
    EXPECT_CONTAINS(text, "give it the shape [1]");
    Scaled one(world, Shape{1});
    fully_shard(one, mesh);
    const Tensor x = random(world, Shape{3});
    const Tensor y = co_await one.forward(x);
    expect_close(y, x * 2.0);
    co_await backward(sum(y));
    expect_close(one.scale.grad(), reshape(sum(x), Shape{1}));
  });
}

TEST(Remedies, APlanComesBeforeFullyShard) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    nn::CausalLM late(llama_of(4), world);
    fully_shard(late, mesh["dp"]);
    const std::string text =
        co_await error_of(parallelize_module(late, mesh["tp"], nn::causal_lm_plan(false)));
    EXPECT_CONTAINS(text, "parameter 'model.embed_tokens.weight'");
    EXPECT_CONTAINS(text, "call parallelize_module first");
    nn::MLP model({.dim = 8, .ffn = 16}, world);
    ParallelPlan plan;
    plan["w[13]"] = ColwiseParallel{};
    plan["w2"] = RowwiseParallel{};
    co_await parallelize_module(model, mesh["tp"], plan);
    fully_shard(model, mesh["dp"]);
    const Tensor x = random(world, Shape{2, 8}, DType::F32);
    const Tensor y = co_await model.forward(x);
    EXPECT_EQ(y.shape(), (Shape{2, 8}));
  });
}

TEST(Remedies, LogitsAreRedistributedForALossOverShardedClasses) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const Tensor full = random(world, Shape{4, 3, 6}), targets = integers(world, Shape{4, 3}, 6);
    const Tensor want = cross_entropy_rows(full, targets);
    const std::pair<Layout, Layout> cases[] = {
        {Layout(Shard(0), Shard(0)), Layout(Shard(0), Shard(2))},
        {Layout(Shard(2), Shard(2)), Layout(Replicate(), Shard(2))},
        {Layout(Shard(1), Replicate()), Layout(Shard(1), Shard(2))},
        {Layout(Shard(2), Partial()), Layout(Shard(2), Replicate())}};
    for (const auto& [layout, wanted] : cases) {
      const DTensor logits = distribute_tensor(full, mesh, layout);
      const std::string text =
          co_await error_of(discard(loss_parallel_cross_entropy(logits, targets)));
      EXPECT_CONTAINS(text, str_cat("redistribute the logits to ", wanted, " first"));
      const Redistribution moved = logits.redistribute(wanted);
      const DTensor there = co_await moved;
      const Tensor loss = co_await loss_parallel_cross_entropy(there, targets);
      expect_close(loss, want);
    }
  });
}

TEST(Remedies, TensorsOfTwoSlicesMeetOnTheWholeMesh) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"cp", "tp"});
    const Tensor x = random(world, Shape{4, 4});
    const DTensor a = distribute_tensor(x, mesh["cp"], Shard(0));
    const DTensor b = distribute_tensor(x, mesh["tp"], Shard(1));
    std::string text;
    try {
      static_cast<void>(a - b);
    } catch (const Error& error) {
      text = error.what();
    }
    EXPECT_CONTAINS(text, "sub: ");
    EXPECT_CONTAINS(text, "from_local(x.to_local(), mesh, layout)");
    const DTensor rows = from_local(a.to_local(), mesh, Layout(Shard(0), Replicate()));
    const DTensor columns = from_local(b.to_local(), mesh, Layout(Replicate(), Shard(1)));
    expect_close(rows + columns, x * 2.0);
    co_return;
  });
}

TEST(Remedies, AStylesOutputHasItsLayoutForEveryBatch) {
  on_ranks(2, [](World& world) -> Task<void> {
    for (const std::int64_t batch : {1, 2, 3, 4, 7}) {
      nn::LayerNorm norm(4, world, {.dtype = DType::F64});
      const DeviceMesh mesh = line(world);
      co_await parallelize_module(norm, mesh, SequenceParallel{});
      const DTensor x = distribute_tensor(random(world, Shape{batch, 2, 4}), mesh, Shard(1));
      const Tensor y = co_await norm.forward(x);
      EXPECT_EQ(y.layout(), Layout(Shard(1))) << batch;
    }
  });
}

// A module that leaves another layout than the style names.
struct Turned : Module {
  Task<Tensor> run(Tensor x) override {
    const Redistribution moved = x.redistribute(Shard(0));
    co_return co_await moved;
  }
};

TEST(Remedies, AStylesOutputHasItsLayoutWhateverOperatorsChose) {
  on_ranks(2, [](World& world) -> Task<void> {
    Turned turned;
    const DeviceMesh mesh = line(world);
    co_await parallelize_module(turned, mesh, SequenceParallel{});
    const DTensor x = distribute_tensor(random(world, Shape{2, 2, 4}), mesh, Shard(1));
    const Tensor y = co_await turned.forward(x);
    EXPECT_EQ(y.layout(), Layout(Shard(1)));
  });
}

TEST(Remedies, AModuleMadeByMakeUniqueKeepsItsLine) {
  int here = 0;
  const std::string text = remedy_of_run(2, [&](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    nn::Linear model(4, 4, world);
    if (world.rank() == 0) here = __LINE__ + 1;
    const auto gradients = std::make_unique<DataParallel>(model.parameters(), mesh, 3);
    co_return;
  });
  EXPECT_CONTAINS(text, str_cat("remedies_test.cpp:", here));
  EXPECT_EQ(text.find("unique_ptr.h"), std::string::npos) << text;
}

TEST(Remedies, OperatorsAreNamedAsTheyAreCalled) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = random(world, Shape{2, 3}), y = random(world, Shape{2, 4});
    Tensor leaf = random(world, Shape{3});
    leaf.set_requires_grad(true);
    const auto text_of = [](const std::function<void()>& call) {
      try {
        call();
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string("nothing");
    };
    const std::pair<const char*, std::function<void()>> calls[] = {
        {"sub: ", [&] { static_cast<void>(x - y); }},
        {"sub_: ", [&] { sub_(x, y); }},
        {"sub_: ", [&] { sub_(leaf, 1); }},
        {"fill_: ", [&] { fill_(leaf, 1); }},
        {"mul_: ", [&] { mul_(leaf, 2.0); }},
        {"zero_: ", [&] { zero_(leaf); }},
        {"clamp_: ", [&] { leaf.clamp_(0); }},
        {"normal_: ", [&] { leaf.normal_(); }},
        {"copy_: ", [&] { leaf.copy_(y); }},
        {"mse_loss: ", [&] { static_cast<void>(mse_loss(x, y)); }},
        {"sum: ", [&] { static_cast<void>(x.sum(2)); }}};
    for (const auto& [name, call] : calls) {
      const std::string text = text_of(call);
      EXPECT_NE(text.find(name), std::string::npos) << name << text;
      EXPECT_EQ(text.find("_scalar"), std::string::npos) << text;
    }
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing
