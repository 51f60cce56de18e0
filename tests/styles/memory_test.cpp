// What a training step leaves in memory: parameters, gradients, the optimizer's state and the loss.
#include "tests/styles/support.h"

namespace coshard {
namespace {

using testing::integers;
using testing::line;
using testing::on_ranks;

// What memory of so many bytes counts for in a device's memory().
std::size_t counted(World& world, std::size_t bytes) {
  const std::size_t before = world.device()->memory().in_use;
  const auto buffer = world.device()->make_buffer(bytes);
  return world.device()->memory().in_use - before;
}

std::size_t counted(World& world, const Tensor& x) {
  return counted(world, static_cast<std::size_t>(x.local_numel()) * size_of(x.dtype()));
}

struct Held {
  std::size_t parameters = 0, gradients = 0;
};

Held held_by(World& world, nn::Transformer& model) {
  Held held;
  for (const Tensor& parameter : model.parameters()) {
    held.parameters += counted(world, parameter);
    const Tensor gradient = parameter.grad();
    if (gradient.defined()) held.gradients += counted(world, gradient);
  }
  return held;
}

Task<void> train(World& world, bool sequence_parallel) {
  nn::TransformerConfig config = testing::tiny_transformer();
  config.layers = 4;
  const DeviceMesh mesh = line(world);
  const std::size_t empty = world.device()->memory().in_use;
  nn::Transformer model(config, world);
  if (world.size() > 1) {
    Task<void> cut = parallelize_module(model, mesh, nn::transformer_plan(sequence_parallel));
    co_await std::move(cut);
  }
  AdamW optimizer(model.parameters(), {});
  const Tensor ids = integers(world, {2, config.seq}, config.vocab);
  std::size_t once = 0;
  for (int step = 0; step < 3; ++step) {
    Tensor logits = co_await model.forward(ids);
    Tensor loss;
    if (world.size() > 1) {
      Task<Tensor> cut = loss_parallel_cross_entropy(logits, ids);
      loss = co_await std::move(cut);
    } else {
      loss = cross_entropy(logits.reshape({-1, config.vocab}), ids.reshape({-1}));
    }
    logits = Tensor();
    Task<void> walked = backward(loss);
    co_await std::move(walked);
    const std::size_t in_use = world.device()->memory().in_use;
    const Held held = held_by(world, model);
    const std::size_t state = step == 0 ? 0 : 2 * held.parameters;
    const std::size_t rest = in_use - empty - held.parameters - held.gradients - state -
                             counted(world, ids) - counted(world, loss);
    // Tables that are kept for the next step, and nothing else: as much after each step.
    if (step == 0) once = rest;
    EXPECT_LE(rest, 16 * 1024U) << "step " << step;
    EXPECT_EQ(rest, once) << "step " << step;
    Task<void> stepped = optimizer.step();
    co_await std::move(stepped);
    optimizer.zero_grad();
  }
}

TEST(StepMemory, HoldsParametersGradientsStateAndLossAlone) {
  on_ranks(1, [](World& world) { return train(world, false); });
  for (const bool sequence_parallel : {false, true})
    on_ranks(2, [&](World& world) { return train(world, sequence_parallel); });
}

}  // namespace
}  // namespace coshard
