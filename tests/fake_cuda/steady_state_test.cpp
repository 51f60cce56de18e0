// In steady state a training step makes the host wait for nothing (architecture C1), and asks the
// driver for no memory.
#include <barrier>

#include "dtensor/grad_mode.h"
#include "dtensor/ops/ops.h"
#include "dtensor/optim/optimizer.h"
#include "dtensor/random.h"
#include "dtensor/tape.h"
#include "styles/loss_parallel.h"
#include "styles/nn/transformer.h"
#include "styles/parallelize.h"
#include "tests/fake_cuda/on_fake.h"
#include "tests/support/device.h"

namespace coshard::testing {
namespace {

struct Counts {
  std::uint64_t waits = 0, allocations = 0, host_waits = 0;
};

constexpr int kSettling = 3, kSteps = 6;

Task<void> train_steps(World& world, bool sequence_parallel, std::barrier<>& all, Counts& counts) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  nn::TransformerConfig config;
  config.layers = 1;
  config.dim = 16;
  config.heads = 2;
  config.kv_heads = 2;
  config.ffn = 24;
  config.vocab = 10;
  config.seq = 8;
  nn::Transformer model(config, world);
  co_await parallelize_module(model, mesh, nn::transformer_plan(sequence_parallel));
  AdamW optimizer(model.parameters(), {.lr = 1e-3});
  const std::vector<double> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6};
  std::uint64_t waits_before = 0;
  for (int step = 0; step < kSettling + kSteps; ++step) {
    if (step == kSettling) {
      world.device()->synchronize();
      all.arrive_and_wait();
      if (world.rank() == 0) FakeDriver::get().reset_counts();
      all.arrive_and_wait();
      waits_before = world.device()->host_waits();
    }
    const Tensor ids = Tensor::from_values(world.device(), Shape{2, 8}, DType::I64, tokens);
    const Tensor logits = co_await model.forward(ids);
    const Tensor loss = co_await loss_parallel_cross_entropy(logits, ids);
    co_await backward(loss);
    Task<Tensor> clip = clip_grad_norm(optimizer.parameters(), 1.0);
    co_await std::move(clip);
    co_await optimizer.step();
    optimizer.zero_grad();
  }
  all.arrive_and_wait();
  if (world.rank() != 0) co_return;
  counts.waits = FakeDriver::get().synchronisations();
  counts.allocations = FakeDriver::get().calls("Malloc");
  counts.host_waits = world.device()->host_waits() - waits_before;
}

class SteadyState : public ::testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(SteadyState, ATrainingStepMakesTheHostWaitForNothing) {
  const auto [ranks, sequence_parallel] = GetParam();
  std::barrier all(ranks);
  Counts counts;
  const Program program = [&, cut = sequence_parallel](World& world) {
    return train_steps(world, cut, all, counts);
  };
  run_ranks(test_options(ranks), program);
  EXPECT_EQ(counts.waits, 0U);
  EXPECT_EQ(counts.host_waits, 0U);
  // Memory that a peer still reads is not given out yet, so that a step may need a little more.
  EXPECT_LE(counts.allocations, 64U);
}

INSTANTIATE_TEST_SUITE_P(Ranks, SteadyState,
                         ::testing::Values(std::tuple(1, false), std::tuple(2, false),
                                           std::tuple(2, true)));

}  // namespace
}  // namespace coshard::testing
