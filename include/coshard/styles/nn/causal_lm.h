#pragma once
// CausalLM: Llama 2 and 3, Mistral, Qwen 2 and 3, Gemma 1 and what is built like them, with the
// config keys and the module and parameter names of Hugging Face's …ForCausalLM, so that its files
// and tensor-parallel plans fit. Owned by the user; rank's thread.
#include <coshard/styles/nn/causal_lm_config.h>
#include <coshard/styles/nn/config_json.h>
#include <coshard/styles/nn/embedding.h>
#include <coshard/styles/nn/language_model.h>
#include <coshard/styles/nn/linear.h>
#include <coshard/styles/nn/norm.h>

#pragma GCC visibility push(default)
namespace coshard {
namespace nn {

// `hidden_states` [batch, seq, hidden], by keyword or position, with seq not sharded -> the same
// shape. Causal, within the window of a layer that slides; rotary positions 0 … seq-1. The outputs
// of q_proj, k_proj and v_proj are viewed as [batch, seq, width / head_dim, head_dim], with width
// taken from the tensor: projections may be plain, sharded with local outputs, or DTensors. Key
// head j serves query heads j·g … j·g+g-1, where g is the config's group size. ColwiseParallel
// gives each rank whole groups, or, with fewer key heads than ranks, some query heads and all key
// heads. Error{BadInput}: a width that is not a multiple of head_dim; local query heads that are
// not g times the local key heads (a sharded q_proj beside a plain k_proj); attention_dropout in
// training.
class CausalLMAttention : public Module {
 public:
  CausalLMAttention(const CausalLMConfig& config, World& world, std::int64_t layer = 0);
  Linear q_proj, k_proj, v_proj, o_proj;
  std::optional<RMSNorm> q_norm, k_norm;  // over head_dim, if the config has qk_norm

  InputProducts input_products() const override { return products_of({&q_proj, &k_proj, &v_proj}); }

 protected:
  Task<Outputs> run_all(Inputs inputs) override;

 private:
  struct Checked {
    CausalLMConfig c;
  };
  CausalLMAttention(const Checked& made, World& world, std::int64_t layer);
  Tensor heads(const Tensor& projected) const;
  Tensor seen(const Tensor& x, std::int64_t queries) const;
  std::int64_t heads_per_key() const;
  Task<Tensor> placed(Tensor projected, RMSNorm* norm);

  CausalLMConfig config_;
  RotaryTable table_;    // of sequences up to max_position_embeddings
  std::int64_t window_;  // 0: none
};

// down_proj(act(gate_proj(x)) * up_proj(x)), where act is the config's hidden_act
class CausalLMMLP : public Module {
 public:
  CausalLMMLP(const CausalLMConfig& config, World& world);
  Linear gate_proj, up_proj, down_proj;

  InputProducts input_products() const override { return products_of({&gate_proj, &up_proj}); }

 protected:
  Task<Tensor> run(Tensor x) override;

 private:
  HiddenAct act_;
};

// h = x + self_attn(hidden_states=input_layernorm(x)); h + mlp(post_attention_layernorm(h))
class CausalLMLayer : public Module {
 public:
  CausalLMLayer(const CausalLMConfig& config, World& world, std::int64_t layer = 0);
  CausalLMAttention self_attn;
  CausalLMMLP mlp;
  RMSNorm input_layernorm, post_attention_layernorm;

 protected:
  Task<Tensor> run(Tensor x) override;
};

// ids i64 [batch, seq] -> [batch, seq, hidden]
class CausalLMModel : public Module {
 public:
  CausalLMModel(const CausalLMConfig& config, World& world);
  Embedding embed_tokens;
  ModuleList<CausalLMLayer> layers;
  RMSNorm norm;

 protected:
  Task<Tensor> run(Tensor ids) override;

 private:
  double scale_;  // of the embeddings
};

// The tensor-parallel plan of transformers (base_model_tp_plan), except that the gradient of an
// input shared by several projections is reduced once, not once per projection. Logits are a
// DTensor sharded along the classes. sequence_parallel: between the blocks activations are sharded
// along the sequence. qk_norm: of a model with those norms, which run on a rank's own heads.
ParallelPlan causal_lm_plan(bool sequence_parallel, bool qk_norm = false);

// ids i64 [batch, seq] -> logits [batch, seq, vocab]. With tie_word_embeddings, lm_head.weight is
// model.embed_tokens.weight. Error{BadInput}: as checked(config).
class CausalLM : public LanguageModel {
 public:
  CausalLM(const CausalLMConfig& config, World& world);
  CausalLMConfig config;
  CausalLMModel model;
  Linear lm_head;

  std::string config_json() const override { return config_text(config); }
  std::vector<std::string> unused_names() const override;  // frequencies of older files
  std::vector<std::shared_ptr<Module>> blocks() const override;
  ParallelPlan plan(bool sequence_parallel = false) const override {
    return causal_lm_plan(sequence_parallel, config.qk_norm);
  }
  std::int64_t vocab_size() const override { return config.vocab_size; }

 protected:
  Task<Tensor> run(Tensor ids) override;
};

}  // namespace nn
}  // namespace coshard
#pragma GCC visibility pop
