#pragma once
// The hyperparameters of a GPT2, under the names of Hugging Face's config.json, and that file.
// Values; any thread.
#include <coshard/styles/nn/config_json.h>

#pragma GCC visibility push(default)
namespace coshard {
namespace nn {

// Defaults are those of the smallest GPT-2; dtype is that of the parameters created here.
struct GPT2Config {
  std::int64_t vocab_size = 50257;
  std::int64_t n_positions = 1024;
  std::int64_t n_embd = 768;
  std::int64_t n_layer = 12;
  std::int64_t n_head = 12;
  std::int64_t n_inner = 0;  // 0: 4 n_embd
  HiddenAct activation_function = HiddenAct::GeluTanh;
  double resid_pdrop = 0.1, embd_pdrop = 0.1;
  double attn_pdrop = 0.1;  // forward in training refuses another value than 0
  double layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;
  bool scale_attn_weights = true;                // scores by 1/sqrt(head_dim)
  bool scale_attn_by_inverse_layer_idx = false;  // and by 1/(layer + 1)
  bool tie_word_embeddings = true;
  DType dtype = DType::F32;
  ConfigText read_from{};

  friend bool operator==(const GPT2Config&, const GPT2Config&) = default;
};

// With n_inner filled in. Error{BadInput}: an n_embd that is not a multiple of n_head; a
// probability outside [0, 1].
GPT2Config checked(GPT2Config config);

// As read_config, of model_type gpt2. Ignored, attn_pdrop is 0.
GPT2Config read_gpt2_config(const std::string& folder, const ReadConfigOptions& options = {});
// As config_text of a CausalLMConfig.
std::string config_text(const GPT2Config& config);

}  // namespace nn
}  // namespace coshard
#pragma GCC visibility pop
