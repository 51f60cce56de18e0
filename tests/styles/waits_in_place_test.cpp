// No operator of a training step waits in place: whatever a style, a module of nn, the loss, the
// backward pass or an optimizer reads has been awaited before.
#include <coshard/dtensor/tensor/waits_in_place.h>

#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

std::string waited() {
  std::string text;
  for (const auto& [who, count] : waits_in_place()) text += str_cat(who, " ", count, " times; ");
  return text;
}

Task<void> step_of(World& world, bool sequence_parallel, bool recompute, int steps) {
  const DeviceMesh mesh = line(world);
  nn::Transformer model(tiny_transformer(), world);
  co_await parallelize_module(model, mesh, nn::transformer_plan(sequence_parallel));
  if (recompute)
    for (std::size_t i = 0; i < model.layers.size(); ++i) model.layers[i].set_recompute();
  AdamW optimizer(model.parameters(), {.lr = 1e-3});
  for (int step = 0; step < steps; ++step) {
    const Tensor ids = integers(world, Shape{2, 8}, 32), targets = integers(world, Shape{2, 8}, 31);
    clear_waits_in_place();
    const Tensor logits = co_await model.forward(ids);
    const Tensor loss = co_await loss_parallel_cross_entropy(logits, targets);
    EXPECT_EQ(waited(), "") << "forward, step " << step;
    co_await backward(loss);
    EXPECT_EQ(waited(), "") << "backward, step " << step;
    co_await clip_grad_norm(model.parameters(), 1.0);
    EXPECT_EQ(waited(), "") << "clip_grad_norm, step " << step;
    co_await optimizer.step();
    optimizer.zero_grad();
    EXPECT_EQ(waited(), "") << "optimizer, step " << step;
  }
}

class WaitsInPlace : public ::testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(WaitsInPlace, ATrainingStepHasNone) {
  const bool sequence_parallel = std::get<0>(GetParam()), recompute = std::get<1>(GetParam());
  for (const int ranks : {1, 2, 4})
    on_ranks(ranks, [&](World& world) { return step_of(world, sequence_parallel, recompute, 3); });
}

INSTANTIATE_TEST_SUITE_P(Plans, WaitsInPlace,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) ? "TpSp" : "Tp") +
                                  (std::get<1>(info.param) ? "Recomputed" : "");
                         });

Task<void> read_in_flight(World& world) {
  const DeviceMesh mesh = line(world);
  const DTensor cut = distribute_tensor(ones(world.device(), {4, 2}), mesh, Shard(0));
  clear_waits_in_place();
  const Redistribution arriving = cut.redistribute(Replicate());
  const Tensor doubled = arriving.tensor() * 2.0;
  if (world.device()->kind() == DeviceKind::Cpu) {
    EXPECT_EQ(waited(), "mul_scalar 1 times; ");
  }
  co_await arriving;
}

TEST(WaitsInPlace, AreCountedByOperator) { on_ranks(2, read_in_flight); }

}  // namespace
}  // namespace coshard::testing
