#pragma once
// Shared by the benches of a training step: the model that TrainOptions describe, and its loss.
#include <cstdint>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/styles/loss_parallel.h>
#include <coshard/styles/nn/transformer.h>
#include "profiling/bench/benches.h"

namespace coshard::bench {

constexpr std::int64_t kVocab = 256;

inline nn::TransformerConfig config_of(const TrainOptions& o) {
  nn::TransformerConfig config;
  config.vocab = kVocab;
  config.dim = o.dim;
  config.layers = o.layers;
  config.heads = o.heads;
  config.ffn = o.ffn;
  config.seq = o.seq;
  config.dtype = parse_dtype(o.dtype);
  return config;
}

// Mean cross entropy of the model's logits; sharded logits are not gathered.
inline Task<Tensor> loss_of(nn::Transformer& model, Tensor tokens, Tensor targets) {
  Task<Tensor> forward = model.forward(tokens);
  Tensor logits = co_await std::move(forward);
  logits = view(logits, Shape{targets.numel(), kVocab});
  if (!logits.is_distributed()) co_return cross_entropy(logits, targets);
  Task<Tensor> parallel = loss_parallel_cross_entropy(logits, targets);
  co_return co_await std::move(parallel);
}

}  // namespace coshard::bench
