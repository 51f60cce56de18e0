// Parameters that stay plain between sharded modules, and plain batches: what is wrong is told by
// name, and nothing else is.
#include "tests/styles/support.h"
#include "tests/support/ends.h"

namespace coshard::testing {
namespace {

// A norm on heads that each rank has its own of: [rows, dim] -> heads of `kHead`.
constexpr std::int64_t kHead = 4;
struct HeadNorm : Module {
  explicit HeadNorm(World& world)
      : up(8, 16, world, {.dtype = DType::F64}),
        norm(kHead, world, {.dtype = DType::F64}),
        down(16, 8, world, {.dtype = DType::F64}) {
    register_module("up", up);
    register_module("norm", norm);
    register_module("down", down);
  }
  Task<Tensor> run(Tensor x) override {
    const Tensor h = co_await up.forward(std::move(x));
    Tensor heads = h.view({h.size(0), h.size(1) / kHead, kHead});
    heads = co_await norm.forward(std::move(heads));
    if (heads.is_distributed()) heads = heads.to_local();
    co_return co_await down.forward(heads.reshape(h.shape()));
  }
  nn::Linear up;
  nn::RMSNorm norm;
  nn::Linear down;
};

ParallelPlan head_plan() {
  ParallelPlan plan;
  plan["up"] = ColwiseParallel{};
  plan["down"] = RowwiseParallel{};
  return plan;
}

struct Trained {
  std::vector<double> losses, norms, scale;
};
Task<Trained> trained(HeadNorm& model, Tensor x, int steps, bool clip) {
  Trained found;
  SGD optimizer(model.parameters(), {.lr = 0.05});
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    const Tensor y = co_await model.forward(x);
    const Tensor error = y - x;
    const Tensor loss = mean(error * error);
    co_await backward(loss);
    if (clip) {
      const Tensor norm = co_await clip_grad_norm(model.parameters(), 0.1);
      found.norms.push_back(norm.item());
    }
    co_await optimizer.step();
    found.losses.push_back(loss.item());
  }
  const Tensor scale = model.norm.weight;
  found.scale = (scale.is_distributed() ? scale.full_tensor() : scale).to_vector();
  co_return found;
}

void expect_equal(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-9) << i;
}

void expect_ends(const Program& program, ErrorKind kind, const std::vector<std::string>& names) {
  std::string texts;  // a rank in another process may hear first that its peer has left
  for (const End& end : ends_of(quick_options(2), program)) {
    EXPECT_TRUE(end.is(kind)) << end;
    texts += end.text + "\n";
  }
  for (const std::string& name : names) EXPECT_CONTAINS(texts, name);
}

TEST(PlainParameters, OfHeadsAreNamedAtTheFirstClipAndStep) {
  for (const bool clip : {true, false})
    expect_ends(
        [clip](World& world) -> Task<void> {
          HeadNorm model(world);
          co_await parallelize_module(model, line(world), head_plan());
          co_await trained(model, random(world, {4, 8}), 2, clip);
        },
        ErrorKind::CommFailed, {"'norm.weight'", "tp[2]", "rms_norm"});
}

TEST(PlainParameters, OfHeadsAreRightInSequenceParallelOrSummed) {
  Trained want;
  const auto run = [&](int ranks, bool style) {
    Trained got;
    on_ranks(ranks, [&](World& world) -> Task<void> {
      manual_seed(3);
      HeadNorm model(world);
      const Tensor x = random(world, {4, 8});
      ParallelPlan plan = head_plan();
      if (style) plan["norm"] = SequenceParallel{};  // dimension 1: the heads
      co_await parallelize_module(model, line(world), plan);
      const Trained own = co_await trained(model, x, 3, true);
      if (world.rank() == 0) got = own;
    });
    return got;
  };
  want = run(1, false);
  for (const int ranks : {2, 4}) {
    const Trained got = run(ranks, true);
    expect_equal(got.losses, want.losses);
    expect_equal(got.norms, want.norms);
    expect_equal(got.scale, want.scale);
  }
}

TEST(PlainParameters, ThatAreSummedByHandAreRight) {
  std::vector<double> found[2];
  for (const int ranks : {1, 2})
    on_ranks(ranks, [&](World& world) -> Task<void> {
      manual_seed(3);
      HeadNorm model(world);
      const Tensor x = random(world, {4, 8});
      const DeviceMesh mesh = line(world);
      co_await parallelize_module(model, mesh, head_plan());
      AdamW optimizer(model.parameters(), {.lr = 0.05});
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        const Tensor y = co_await model.forward(x);
        co_await backward(mean(y * y));
        all_reduce_gradients({model.norm.weight}, mesh, 0);
        co_await clip_grad_norm(model.parameters(), 0.1);
        co_await optimizer.step();
      }
      co_await verify_replicated(model);
      if (world.rank() == 0) found[ranks - 1] = model.norm.weight.to_vector();
    });
  expect_equal(found[1], found[0]);
}

TEST(PlainParameters, ReadAsReplicateAreAnErrorOfForward) {
  expect_ends(
      [](World& world) -> Task<void> {
        HeadNorm model(world);
        ParallelPlan plan = head_plan();
        plan["norm"] = NoParallel{};
        co_await parallelize_module(model, line(world), plan);
        co_await trained(model, random(world, {4, 8}), 1, false);
      },
      ErrorKind::BadInput, {"RMSNorm 'norm'", "'tp'", "input_layouts"});
}

// The plan forgets the norm between modules whose activations are sharded along the sequence.
TEST(PlainParameters, OfAForgottenNormAreNamed) {
  struct Block : Module {
    explicit Block(World& world)
        : in(4, 4, world, {.dtype = DType::F64}),
          norm(4, world, {.dtype = DType::F64}),
          up(4, 8, world, {.dtype = DType::F64}) {
      register_module("in", in);
      register_module("norm", norm);
      register_module("up", up);
    }
    Task<Tensor> run(Tensor x) override {
      Tensor h = co_await in.forward(std::move(x));
      h = co_await norm.forward(std::move(h));
      co_return co_await up.forward(std::move(h));
    }
    nn::Linear in;
    nn::LayerNorm norm;
    nn::Linear up;
  };
  for (const bool clip : {true, false})
    expect_ends(
        [clip](World& world) -> Task<void> {
          Block block(world);
          ParallelPlan plan;
          plan["in"] = RowwiseParallel{.input_layouts = Replicate(), .output_layouts = Shard(1)};
          plan["up"] = ColwiseParallel{.input_layouts = Shard(1), .output_layouts = Replicate()};
          co_await parallelize_module(block, line(world), plan);
          SGD optimizer(block.parameters(), {.lr = 0.1});
          for (int step = 0; step < 2; ++step) {
            const Tensor y = co_await block.forward(random(world, {2, 6, 4}));
            co_await backward(sum(y * y));
            if (clip) co_await clip_grad_norm(block.parameters(), 1);
            co_await optimizer.step();
            optimizer.zero_grad();
          }
        },
        ErrorKind::CommFailed, {"'norm.weight'", "tp[2]"});
}

TEST(PlainParameters, UnderFullyShardAreStillOwedAlongTp) {
  struct Scale : Module {
    explicit Scale() { register_parameter("weight", weight); }
    Task<Tensor> run(Tensor x) override { co_return x* weight; }
    Tensor weight = ones({4}, DType::F64, true);
  };
  const auto program = [](bool pays) {
    return [pays](World& world) -> Task<void> {
      const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
      Scale scale;
      fully_shard(scale, mesh["dp"]);
      SGD optimizer(scale.parameters(), {.lr = 0.1});
      const DTensor x = ones(mesh["tp"], Shard(0), {4, 4}, DType::F64);
      const Tensor h = co_await scale.forward(x.to_local());
      const DTensor rows = from_local(h, mesh["tp"], Shard(0));
      const Redistribution whole = rows.redistribute(Replicate());
      const DTensor all = co_await whole;
      co_await backward(sum(all.to_local() * all.to_local()));
      if (pays) all_reduce_gradients(scale.parameters(), mesh["tp"], 0);
      co_await optimizer.step();
    };
  };
  for (const End& end : ends_of(quick_options(4), program(true))) EXPECT_FALSE(end.failed) << end;
}

Task<void> llama_steps(World& world, bool sequence, int seed_of_batch) {
  manual_seed(1);
  nn::CausalLM model(small_llama(), world);
  co_await parallelize_module(model, line(world), nn::causal_lm_plan(sequence));
  AdamW optimizer(model.parameters(), {.lr = 0.01});
  std::vector<double> ids;
  for (int i = 0; i < 16; ++i) ids.push_back((i * 5 + 3 * seed_of_batch) % 11);
  const Tensor tokens = Tensor::from_values(world.device(), {2, 8}, DType::I64, ids);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const Tensor y = co_await model.forward(tokens);
    const Tensor loss = co_await loss_parallel_cross_entropy(y, tokens);
    co_await backward(loss);
    co_await clip_grad_norm(model.parameters(), 1);
    co_await optimizer.step();
  }
  co_await verify_replicated(model);
}

TEST(PlainBatches, ThatDifferWithinASliceAreAnErrorOfTheFirstForward) {
  for (const bool sequence : {false, true}) {
    expect_ends([sequence](World& world) { return llama_steps(world, sequence, world.rank()); },
                ErrorKind::CommFailed, {"Embedding", "Replicate"});
    for (const End& end : ends_of(quick_options(2), [sequence](World& world) {
           return llama_steps(world, sequence, 1);
         }))
      EXPECT_FALSE(end.failed) << end;
  }
}

TEST(PlainBatches, AreComparedLaterUnderAReplicaGuard) {
  const auto program = [](bool guarded) {
    return [guarded](World& world) -> Task<void> {
      nn::Linear linear(4, 4, world, {.dtype = DType::F64});
      co_await parallelize_module(linear, line(world), ColwiseParallel{});
      std::optional<ReplicaGuard> guard;
      if (guarded) guard.emplace(world);
      for (int step = 0; step < 4; ++step) {
        const double own = step == 3 ? world.rank() : 0;
        const Tensor y = co_await linear.forward(full({2, 4}, 1 + own, DType::F64));
        co_await backward(sum(y));
        const Redistribution all =
            from_local(y.detach(), line(world), Shard(1)).redistribute(Replicate());
        co_await all;
      }
    };
  };
  for (const End& end : ends_of(quick_options(2), program(false))) EXPECT_FALSE(end.failed) << end;
  expect_ends(program(true), ErrorKind::CommFailed, {"Linear", "Replicate"});
}

TEST(PlainBatches, AreNotComparedOffTheTape) {
  on_ranks(2, [](World& world) -> Task<void> {
    nn::Linear linear(4, 4, world, {.dtype = DType::F64});
    co_await parallelize_module(linear, line(world), ColwiseParallel{});
    const NoGradGuard off;
    const Tensor y = co_await linear.forward(full({2, 4}, world.rank(), DType::F64));
    co_await from_local(y, line(world), Shard(1)).redistribute(Replicate());
  });
}

TEST(ParallelizeModule, WarnsOfAPlainNormBehindShards) {
  ::testing::internal::CaptureStderr();
  on_ranks(2, [](World& world) -> Task<void> {
    HeadNorm model(world);
    co_await parallelize_module(model, line(world), head_plan());
    nn::CausalLM llama(small_llama(), world);  // whose norms see whole activations
    co_await parallelize_module(llama, line(world), nn::causal_lm_plan(false));
  });
  const std::string said = ::testing::internal::GetCapturedStderr();
  const std::string warning = "warning: parallelize_module: ";
  EXPECT_EQ(said.find(warning), said.rfind(warning)) << said;
  EXPECT_TRUE(said.empty() || said.find("'norm.weight'") != std::string::npos) << said;
}

TEST(VerifyReplicated, ComparesPlainParametersBesideDTensors) {
  on_ranks(2, [](World& world) -> Task<void> {
    HeadNorm model(world);
    const DeviceMesh mesh = line(world);
    co_await parallelize_module(model, mesh, head_plan());
    co_await verify_replicated(model);
    {
      const NoGradGuard off;
      fill_(model.norm.weight, world.rank());
    }
    const std::string text = co_await error_of(verify_replicated(model));
    EXPECT_CONTAINS(text, "norm.weight");
    varies(model.norm.weight, mesh, 0);
    co_await verify_replicated(model);
  });
}

}  // namespace
}  // namespace coshard::testing
