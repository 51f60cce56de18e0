// One decoder layer of Llama 3 8B's shape, forward and backward, bf16, one sequence.
#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/styles/nn/causal_lm.h>
#include "profiling/bench/gpu_cases.h"

namespace coshard::bench {
namespace {

nn::CausalLMConfig llama_config_of(const GpuSizes& sizes) {
  nn::CausalLMConfig config;
  config.hidden_size = sizes.hidden;
  config.intermediate_size = sizes.ffn;
  config.num_attention_heads = sizes.heads;
  config.num_key_value_heads = sizes.kv_heads;
  config.dtype = DType::BF16;
  return config;
}

// FLOPs of the matmuls of a step, forward and backward: 2 per multiplication, three times;
// attention over the lower triangle.
double block_flops(const GpuSizes& s) {
  const double h = static_cast<double>(s.hidden), t = static_cast<double>(s.tokens);
  const double kv = h * static_cast<double>(s.kv_heads) / static_cast<double>(s.heads);
  const double weights = 2 * h * h + 2 * h * kv + 3 * h * static_cast<double>(s.ffn);
  return 6 * t * weights + 6 * t * t * h;
}

Task<void> block_step(nn::CausalLMLayer& layer, Tensor x, Tensor gradient) {
  Task<Tensor> forward = layer.forward(x);
  Tensor out = co_await std::move(forward);
  co_await backward(out, gradient);
  layer.zero_grad();
  x.set_grad({});
}

}  // namespace

Task<RobustStats> timed_steps(Device& device, std::function<Task<void>()> step, int calls) {
  std::vector<double> rounds;
  for (int round = -1; round < kRounds; ++round) {
    const int now = round < 0 ? 3 : calls;  // the first warms up
    device.synchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < now; ++i) {
      Task<void> one = step();
      co_await std::move(one);
    }
    device.synchronize();
    if (round >= 0) rounds.push_back(seconds_since(begin) / calls * 1e6);
  }
  co_return robust_stats(rounds);
}

Task<void> measure_block(World& world, const GpuSizes& sizes, GpuResults& results) {
  manual_seed(0);
  nn::CausalLMLayer layer(llama_config_of(sizes), world);
  const Shape shape{1, sizes.tokens, sizes.hidden};
  Tensor x = randn(world.device(), shape, DType::BF16);
  x.set_requires_grad(true);
  const Tensor gradient = ones(world.device(), shape, DType::BF16);
  const std::function<Task<void>()> step = [&] { return block_step(layer, x, gradient); };
  Task<RobustStats> timing = timed_steps(*world.device(), step, sizes.steps);
  RobustStats us = co_await std::move(timing);
  RobustStats ms = {us.median / 1e3, us.min / 1e3, us.max / 1e3, us.spread / 1e3, us.count};
  results.push_back(measured("block", ms, "ms"));
  results.push_back(
      {"block_tflops", block_flops(sizes) / us.median / 1e6, "TFLOP/s", {}, true, {}, {}});
}

}  // namespace coshard::bench
