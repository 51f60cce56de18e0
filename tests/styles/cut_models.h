#pragma once
// A small model with tied embeddings, cut over all ranks in several ways.
#include <map>

#include "tests/dtensor/checkpoint/stored_files.h"
#include "tests/styles/support.h"
#include "tests/support/device.h"

namespace coshard::testing {

enum class Cut { One, Tp, Fsdp, Both };

inline nn::CausalLMConfig tied_llama(DType dtype) {
  nn::CausalLMConfig config = small_llama();
  config.tie_word_embeddings = true;
  config.dtype = dtype;
  return config;
}

// A model with weights of its own seed, cut over all ranks.
inline Task<std::shared_ptr<nn::CausalLM>> made(World& world, Cut cut, std::uint64_t seed,
                                                DType dtype = DType::F64) {
  manual_seed(seed);
  auto model = std::make_shared<nn::CausalLM>(tied_llama(dtype), world);
  const int tp = cut == Cut::Tp ? world.size() : cut == Cut::Both ? 2 : 1;
  const DeviceMesh mesh = init_device_mesh(world, {world.size() / tp, tp}, {"dp", "tp"});
  if (tp > 1) {
    Task<void> parallel = parallelize_module(*model, mesh["tp"], nn::causal_lm_plan(false));
    co_await std::move(parallel);
  }
  if (cut == Cut::Fsdp || cut == Cut::Both) {
    for (const auto& layer : model->model.layers) fully_shard(*layer, mesh["dp"]);
    fully_shard(*model, mesh["dp"]);
  }
  co_return model;
}

inline std::map<std::string, std::vector<double>> values_of(Module& module) {
  std::map<std::string, std::vector<double>> values;
  for (const NamedState& entry : state_dict(module)) {
    const Tensor x = entry.tensor.detach();
    values[entry.name] = (x.is_distributed() ? full_tensor(x) : x).to_vector();
  }
  return values;
}

using Losses = std::vector<double>;

// Steps `first` to `end`: what a step sees depends on its number and the random stream alone.
inline Task<Losses> trained(World& world, nn::CausalLM& model, Optimizer& optimizer, int first,
                            int end) {
  Losses losses;
  for (int step = first; step < end; ++step) {
    std::vector<double> values(12);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>((static_cast<int>(i) * 7 + step * 5) % 11);
    const Tensor ids = Tensor::from_values(world.device(), {2, 6}, DType::I64, values);
    Tensor logits = co_await model.forward(ids);
    if (logits.is_distributed()) logits = full_tensor(logits);
    const Tensor kept = dropout(to(logits, DType::F64), 0.2);
    const Tensor loss = mean(kept * kept);
    optimizer.zero_grad();
    Task<void> backward = loss.backward();
    co_await std::move(backward);
    Task<void> stepped = optimizer.step();
    co_await std::move(stepped);
    losses.push_back(loss.item());
  }
  co_return losses;
}

struct Cutting {
  Cut cut;
  int ranks;
};
inline constexpr Cutting kCuttings[] = {{Cut::One, 1},  {Cut::Tp, 2},   {Cut::Fsdp, 2},
                                        {Cut::Fsdp, 3}, {Cut::Both, 4}, {Cut::Fsdp, 4}};

// A world that is not spread over the processes is in each of them, and all would write one folder.
// An emulated device takes seconds for a step: there on two ranks at most.
inline bool runs_here(const Cutting& cutting) {
  if (!on_cpu()) return cutting.ranks <= 2;
  return !ScratchFolder::is_shared() || cutting.ranks % 2 == 0;
}

}  // namespace coshard::testing
