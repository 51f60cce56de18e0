#pragma once
// GPT2: GPT-2 with the module and parameter names of Hugging Face's GPT2LMHeadModel. Owned by the
// user; rank's thread.
#include <coshard/styles/nn/activation.h>
#include <coshard/styles/nn/conv1d.h>
#include <coshard/styles/nn/embedding.h>
#include <coshard/styles/nn/gpt2_config.h>
#include <coshard/styles/nn/language_model.h>
#include <coshard/styles/nn/linear.h>
#include <coshard/styles/nn/norm.h>

#pragma GCC visibility push(default)
namespace coshard {
namespace nn {

// x [batch, seq, n_embd], with seq not sharded -> the same shape. Causal. The output of c_attn
// holds q, k and v, in equal parts of whole heads: it may be plain, this rank's heads of each, or a
// DTensor. Error{BadInput}: parts of heads; attn_pdrop in training.
class GPT2Attention : public Module {
 public:
  GPT2Attention(const GPT2Config& config, World& world, std::int64_t layer = 0);
  Conv1D c_attn, c_proj;
  Dropout resid_dropout;

 protected:
  Task<Tensor> run(Tensor x) override;

 private:
  std::int64_t head_dim_;
  double attn_pdrop_, scale_;
};

// c_proj(act(c_fc(x)))
class GPT2MLP : public Module {
 public:
  GPT2MLP(const GPT2Config& config, World& world);
  Conv1D c_fc, c_proj;
  Dropout dropout;

 protected:
  Task<Tensor> run(Tensor x) override;

 private:
  HiddenAct act_;
};

// h = x + attn(ln_1(x)); h + mlp(ln_2(h))
class GPT2Block : public Module {
 public:
  GPT2Block(const GPT2Config& config, World& world, std::int64_t layer = 0);
  LayerNorm ln_1;
  GPT2Attention attn;
  LayerNorm ln_2;
  GPT2MLP mlp;

 protected:
  Task<Tensor> run(Tensor x) override;
};

// ids i64 [batch, seq] -> [batch, seq, n_embd]; positions are 0 … seq-1.
class GPT2Model : public Module {
 public:
  GPT2Model(const GPT2Config& config, World& world);
  Embedding wte, wpe;
  Dropout drop;
  ModuleList<GPT2Block> h;
  LayerNorm ln_f;

 protected:
  Task<Tensor> run(Tensor ids) override;
};

// c_attn is cut within q, k and v, by whole heads; positions are on all ranks.
ParallelPlan gpt2_plan(bool sequence_parallel);

// With tie_word_embeddings, lm_head.weight is transformer.wte.weight. Files may lack the prefix
// "transformer.", and have masks, which are passed over. Error{BadInput}: as checked(config); ids
// of more than n_positions.
class GPT2 : public LanguageModel {
 public:
  GPT2(const GPT2Config& config, World& world);
  GPT2Config config;
  GPT2Model transformer;
  Linear lm_head;

  std::string config_json() const override { return config_text(config); }
  std::vector<std::string> unused_names() const override;
  std::string optional_prefix() const override { return "transformer."; }
  std::vector<std::shared_ptr<Module>> blocks() const override;
  ParallelPlan plan(bool sequence_parallel = false) const override {
    return gpt2_plan(sequence_parallel);
  }
  std::int64_t vocab_size() const override { return config.vocab_size; }
  std::int64_t longest_sequence() const override { return config.n_positions; }

 protected:
  Task<Tensor> run(Tensor ids) override;
};

}  // namespace nn
}  // namespace coshard
#pragma GCC visibility pop
