#pragma once
// Models and prompts for the tests of generation, and an oracle that has no cache.
#include <algorithm>
#include <random>

#include "tests/styles/support.h"

namespace coshard::testing {

using Tokens = std::vector<std::int64_t>;

inline nn::CausalLMConfig speaking_llama() {
  nn::CausalLMConfig config = small_llama();
  config.vocab_size = 37;
  config.initializer_range = 0.5;  // so that tokens differ
  config.qkv_bias = true;
  return config;
}

inline std::vector<Tokens> some_prompts(std::size_t count, std::int64_t vocabulary, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<Tokens> prompts(count);
  for (Tokens& prompt : prompts) {
    prompt.resize(std::uniform_int_distribution<std::size_t>(1, 9)(engine));
    for (std::int64_t& token : prompt)
      token = std::uniform_int_distribution<std::int64_t>(0, vocabulary - 1)(engine);
  }
  return prompts;
}

inline Tensor row_of(World& world, const Tokens& tokens) {
  return Tensor::from_values(world.device(), Shape{1, static_cast<std::int64_t>(tokens.size())},
                             DType::I64, tokens);
}

// Logits [vocab] after `tokens`, by a forward over all of them.
inline Task<std::vector<double>> logits_after(World& world, Module& model, Tokens tokens) {
  const NoGradGuard no_grad;
  Task<Tensor> forward = model.forward(row_of(world, tokens));
  const Tensor logits = co_await std::move(forward);
  const Tensor whole = logits.is_distributed() ? full_tensor(logits) : logits;
  const Tensor last = select(select(whole, 0, 0), 0, -1);
  co_return contiguous(last).to_vector();
}

// The most likely tokens after `prompt`, one forward each.
inline Task<Tokens> greedy_without_cache(World& world, Module& model, Tokens prompt, int count) {
  Tokens made;
  for (int i = 0; i < count; ++i) {
    Task<std::vector<double>> after = logits_after(world, model, prompt);
    const std::vector<double> logits = co_await std::move(after);
    made.push_back(std::max_element(logits.begin(), logits.end()) - logits.begin());
    prompt.push_back(made.back());
  }
  co_return made;
}

// What a generator makes of the prompts: a list for each, to its end.
inline Task<std::vector<Tokens>> generated(nn::Generator& generator, std::vector<Tokens> prompts,
                                           std::int64_t first = 0) {
  std::vector<Tokens> made(prompts.size());
  Task<void> start = generator.start(std::move(prompts), first);
  co_await std::move(start);
  for (;;) {
    Task<std::optional<std::span<const std::int64_t>>> step = generator.next();
    const auto next = co_await std::move(step);
    if (!next) break;
    for (std::size_t i = 0; i < made.size(); ++i)
      if ((*next)[i] != nn::Generator::kFinished) made[i].push_back((*next)[i]);
  }
  co_return made;
}

}  // namespace coshard::testing
