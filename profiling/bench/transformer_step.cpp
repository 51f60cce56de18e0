#include "profiling/bench/transformer_step.h"

#include <coshard/dtensor/ops/ops.h>
#include <coshard/styles/loss_parallel.h>

namespace coshard::bench {

nn::TransformerConfig config_of(const TrainOptions& o) {
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

Task<Tensor> loss_of(nn::Transformer& model, Tensor tokens, Tensor targets) {
  Task<Tensor> forward = model.forward(tokens);
  Tensor logits = co_await std::move(forward);
  logits = view(logits, Shape{targets.numel(), kVocab});
  if (!logits.is_distributed()) co_return cross_entropy(logits, targets);
  Task<Tensor> parallel = loss_parallel_cross_entropy(logits, targets);
  co_return co_await std::move(parallel);
}

}  // namespace coshard::bench
