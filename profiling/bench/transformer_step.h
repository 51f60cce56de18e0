#pragma once
// What the benches of a training step share: the model that TrainOptions describe, and its loss.
#include <cstdint>

#include <coshard/styles/nn/transformer.h>
#include "profiling/bench/benches.h"

namespace coshard::bench {

constexpr std::int64_t kVocab = 256;

nn::TransformerConfig config_of(const TrainOptions& options);
// Mean cross entropy of the model's logits; of sharded ones without gathering them.
Task<Tensor> loss_of(nn::Transformer& model, Tensor tokens, Tensor targets);

}  // namespace coshard::bench
