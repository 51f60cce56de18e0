#pragma once
// Transformer: a Llama-shaped language model, and its tensor-parallel plans. Owned by the user;
// rank's thread.
#include <coshard/styles/nn/activation.h>
#include <coshard/styles/nn/attention.h>
#include <coshard/styles/nn/embedding.h>
#include <coshard/styles/nn/mlp.h>
#include <coshard/styles/nn/norm.h>
#include <coshard/styles/parallelize.h>

#pragma GCC visibility push(default)
namespace coshard {
namespace nn {

struct TransformerConfig {
  std::int64_t vocab = 256;
  std::int64_t dim = 256;
  std::int64_t layers = 4;
  std::int64_t heads = 8;
  std::int64_t kv_heads = 0;  // 0: heads
  std::int64_t ffn = 688;
  std::int64_t seq = 256;  // longest sequence
  double norm_eps = 1e-6;
  double rope_theta = 10000;
  double dropout = 0;
  DType dtype = DType::F32;
  double init_std = 0.02;  // weights are initialized to normal(0, init_std), biases to 0
};

// h = x + drop(attn(norm1(x))), then h + drop(mlp(norm2(h))).
class TransformerBlock : public Module {
 public:
  TransformerBlock(const TransformerConfig& config, World& world);

  RMSNorm norm1;
  Attention attn;
  RMSNorm norm2;
  MLP mlp;
  Dropout drop;

 protected:
  Task<Tensor> run(Tensor x) override;
};

// ids i64 [batch, seq] -> logits [batch, seq, vocab]. Modules: tok_embeddings, layers.N.{norm1,
// attn.{wq,wk,wv,wo}, norm2, mlp.{w1,w3,w2}, drop}, norm, output. Error{BadInput}: sizes that do
// not divide; ids longer than config.seq.
class Transformer : public Module {
 public:
  Transformer(const TransformerConfig& config, World& world);

  TransformerConfig config;
  Embedding tok_embeddings;
  ModuleList<TransformerBlock> layers;
  RMSNorm norm;
  Linear output;

 protected:
  Task<Tensor> run(Tensor ids) override;
};

// The tensor-parallel plan of a Transformer. Logits are a DTensor sharded along the classes, for
// loss_parallel_cross_entropy. sequence_parallel: between the blocks activations are sharded along
// the sequence (of any length).
//   Moves: per step with L layers 2L+1 all_reduce each in forward and backward (the embedding needs
//          none in backward, the output one); with sequence_parallel, as many all_gather and
//          reduce_scatter.
ParallelPlan transformer_plan(bool sequence_parallel);

}  // namespace nn
}  // namespace coshard
#pragma GCC visibility pop
