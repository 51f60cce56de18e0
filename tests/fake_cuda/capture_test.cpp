// A captured training step is bitwise equal to the eager one, with a handful of calls.
#include <coshard/dtensor/capture/capture.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/styles/loss_parallel.h>
#include <coshard/styles/nn/transformer.h>
#include <coshard/styles/parallelize.h>
#include "tests/fake_cuda/on_fake.h"
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

constexpr int kSteps = 7;

struct Setting {
  int ranks = 1;
  bool sequence_parallel = false, zero_first = false;
  Overlap overlap = Overlap::Auto;
  DType dtype = DType::F32;
};

// The results of a training run that a program can see.
struct TrainingResults {
  std::vector<double> losses;
  std::vector<std::vector<double>> parameters, gradients;
  std::uint64_t next_stream = 0, seed = 0, calls = 0, host_waits = 0;
  bool operator==(const TrainingResults& other) const {
    return losses == other.losses && parameters == other.parameters &&
           gradients == other.gradients && next_stream == other.next_stream && seed == other.seed;
  }
};

nn::TransformerConfig small_model(const Setting& setting) {
  nn::TransformerConfig config;
  config.layers = 1;
  config.dim = 16;
  config.heads = config.kv_heads = 2;
  config.ffn = 24;
  config.vocab = 10;
  config.seq = 8;
  config.dropout = 0.25;
  config.dtype = setting.dtype;
  return config;
}

Tensor tokens_of(World& world, int step) {
  std::vector<double> ids;
  for (int i = 0; i < 16; ++i) ids.push_back((i * 3 + step * 7) % 10);
  return Tensor::from_values(world.device(), Shape{2, 8}, DType::I64, ids);
}

struct Trained {
  nn::Transformer& model;
  AdamW& optimizer;
  bool zero_first;
};

Task<Tensor> one_step(Trained trained, Tensor ids) {
  if (trained.zero_first) trained.optimizer.zero_grad();
  Tensor logits = co_await trained.model.forward(ids);
  Tensor loss = co_await loss_parallel_cross_entropy(logits, ids);
  co_await backward(loss);
  Task<Tensor> clip = clip_grad_norm(trained.optimizer.parameters(), 0.5);
  co_await std::move(clip);
  co_await trained.optimizer.step();
  if (!trained.zero_first) trained.optimizer.zero_grad();
  co_return loss;
}

Task<void> train(World& world, Setting setting, bool captured, TrainingResults& outcome) {
  manual_seed(11);
  nn::Transformer model(small_model(setting), world);
  if (setting.ranks > 1) {
    const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
    const ParallelizeOptions options{.overlap = setting.overlap};
    co_await parallelize_module(model, mesh, nn::transformer_plan(setting.sequence_parallel),
                                options);
  }
  AdamW optimizer(model.parameters(), {.lr = 1e-2});
  const Trained trained{model, optimizer, setting.zero_first};
  const CapturedStep step = capture(
      [&](std::vector<Tensor> inputs) -> Task<Tensor> { return one_step(trained, inputs[0]); });
  std::vector<Tensor> losses;
  for (int i = 0; i < kSteps; ++i) {
    optimizer.lr = 1e-2 / (1 + i);
    const Tensor ids = tokens_of(world, i);
    const std::uint64_t before = FakeDriver::get().calls(""), waits = world.device()->host_waits();
    Task<Tensor> call = captured ? step(ids) : one_step(trained, ids);
    losses.push_back(co_await std::move(call));
    outcome.calls = FakeDriver::get().calls("") - before;
    outcome.host_waits = world.device()->host_waits() - waits;
    if (setting.zero_first && i + 1 < kSteps) optimizer.zero_grad();
  }
  EXPECT_EQ(step.recorded(), captured);
  for (const Tensor& loss : losses) outcome.losses.push_back(loss.item());
  for (const Tensor& p : optimizer.parameters()) {
    outcome.parameters.push_back(p.to_vector());
    outcome.gradients.push_back(p.grad().defined() ? p.grad().to_vector() : std::vector<double>());
  }
  outcome.next_stream = random_state().next_stream;
  outcome.seed = random_state().seed;
}

std::vector<TrainingResults> run_training(const Setting& setting, bool captured) {
  WorldOptions options = test_options(setting.ranks);
  options.communicator = setting.ranks > 1 ? "nccl" : options.communicator;
  options.timeout = std::chrono::seconds(60);
  std::vector<TrainingResults> outcomes(static_cast<std::size_t>(setting.ranks));
  const Program program = [&](World& world) {
    return train(world, setting, captured, outcomes[static_cast<std::size_t>(world.rank())]);
  };
  run_ranks(options, program);
  return outcomes;
}

void expect_same(const Setting& setting, int seeds) {
  const std::vector<TrainingResults> eager = run_training(setting, false);
  for (int seed = 1; seed <= seeds; ++seed) {
    FakeDriver::get().reseed(static_cast<std::uint64_t>(seed));
    const std::vector<TrainingResults> captured = run_training(setting, true);
    for (std::size_t rank = 0; rank < eager.size(); ++rank)
      EXPECT_TRUE(captured[rank] == eager[rank]) << "rank " << rank << ", seed " << seed;
  }
}

TEST(CapturedStep, TrainsAsTheEagerStepBitForBit) {
  expect_same({}, 5);
  expect_same({.dtype = DType::BF16}, 2);
}

TEST(CapturedStep, LeavesTheGradientsThatTheEagerStepLeaves) {
  expect_same({.zero_first = true}, 3);
}

TEST(CapturedStep, TrainsOverNcclAsTheEagerStepBitForBit) {
  expect_same({.ranks = 2}, 5);
  expect_same({.ranks = 2, .sequence_parallel = true}, 5);
  expect_same({.ranks = 2, .sequence_parallel = true, .overlap = Overlap::Always}, 2);
}

TEST(CapturedStep, AReplayIsAHandfulOfCallsAndWaitsForNothing) {
  const TrainingResults eager = run_training({}, false)[0], captured = run_training({}, true)[0];
  std::printf("calls of a step: eager %d, replayed %d\n", static_cast<int>(eager.calls),
              static_cast<int>(captured.calls));
  EXPECT_GT(eager.calls, 200U);
  EXPECT_LE(captured.calls, 20U);
  EXPECT_EQ(captured.host_waits, 0U);
}

}  // namespace
}  // namespace coshard::testing
