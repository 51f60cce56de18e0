#pragma once
// Llama: Hugging Face's LlamaForCausalLM, with the same config keys and module and parameter names,
// so that its tensor-parallel plans fit. Owned by the user; rank's thread.
#include <coshard/styles/nn/embedding.h>
#include <coshard/styles/nn/linear.h>
#include <coshard/styles/nn/norm.h>
#include <coshard/styles/parallelize.h>

#pragma GCC visibility push(default)
namespace coshard {
namespace nn {

// Keys and defaults of transformers' LlamaConfig; dtype is that of the parameters created here.
struct LlamaConfig {
  std::int64_t vocab_size = 32000;
  std::int64_t hidden_size = 4096;
  std::int64_t intermediate_size = 11008;
  std::int64_t num_hidden_layers = 32;
  std::int64_t num_attention_heads = 32;
  std::int64_t num_key_value_heads = 0;  // 0: num_attention_heads
  std::int64_t head_dim = 0;             // 0: hidden_size / num_attention_heads
  double rms_norm_eps = 1e-6;
  double initializer_range = 0.02;
  double rope_theta = 10000;
  bool attention_bias = false;
  bool mlp_bias = false;
  bool tie_word_embeddings = false;
  DType dtype = DType::F32;
};

// `hidden_states` [batch, seq, hidden], by keyword or position, with seq not sharded -> the same
// shape. Causal, rotary positions 0 … seq-1. The outputs of q_proj, k_proj and v_proj are viewed as
// [batch, seq, width / head_dim, head_dim], with width taken from the tensor: projections may be
// plain, sharded with local outputs, or DTensors. Key head j serves query heads j·g … j·g+g-1,
// where g is the config's group size. Error{BadInput}: a width that is not a multiple of head_dim;
// local query heads that are not g times the local key heads (a sharded q_proj beside an unsharded
// k_proj).
class LlamaAttention : public Module {
 public:
  LlamaAttention(const LlamaConfig& config, World& world);
  Linear q_proj, k_proj, v_proj, o_proj;

  bool takes_shards() const override { return q_proj.takes_shards(); }

 protected:
  Task<Outputs> run_all(Inputs inputs) override;

 private:
  Tensor heads(const Tensor& projected, bool rotate) const;

  std::int64_t head_dim_, group_;
  double rope_theta_;
};

// down_proj(silu(gate_proj(x)) * up_proj(x))
class LlamaMLP : public Module {
 public:
  LlamaMLP(const LlamaConfig& config, World& world);
  Linear gate_proj, up_proj, down_proj;

  bool takes_shards() const override { return gate_proj.takes_shards(); }

 protected:
  Task<Tensor> run(Tensor x) override;
};

// h = x + self_attn(hidden_states=input_layernorm(x)); h + mlp(post_attention_layernorm(h))
class LlamaDecoderLayer : public Module {
 public:
  LlamaDecoderLayer(const LlamaConfig& config, World& world);
  LlamaAttention self_attn;
  LlamaMLP mlp;
  RMSNorm input_layernorm, post_attention_layernorm;

 protected:
  Task<Tensor> run(Tensor x) override;
};

// ids i64 [batch, seq] -> [batch, seq, hidden]
class LlamaModel : public Module {
 public:
  LlamaModel(const LlamaConfig& config, World& world);
  Embedding embed_tokens;
  ModuleList<LlamaDecoderLayer> layers;
  RMSNorm norm;

 protected:
  Task<Tensor> run(Tensor ids) override;
};

// ids i64 [batch, seq] -> logits [batch, seq, vocab]. With tie_word_embeddings, lm_head.weight is
// model.embed_tokens.weight. Error{BadInput}: sizes that do not divide; an odd head_dim.
class LlamaForCausalLM : public Module {
 public:
  LlamaForCausalLM(const LlamaConfig& config, World& world);
  LlamaConfig config;
  LlamaModel model;
  Linear lm_head;

 protected:
  Task<Tensor> run(Tensor ids) override;
};

// Hugging Face's base_model_tp_plan of a LlamaForCausalLM, except that the gradient of an input
// shared by several projections is reduced once, not once per projection. Logits are a DTensor
// sharded along the classes. sequence_parallel: between the blocks activations are sharded along
// the sequence.
ParallelPlan llama_plan(bool sequence_parallel);

}  // namespace nn
}  // namespace coshard
#pragma GCC visibility pop
