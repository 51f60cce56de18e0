#pragma once
// The hyperparameters of a CausalLM, under the names of Hugging Face's config.json. Values.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <coshard/dtensor/ops/rotary_table.h>
#include <coshard/runtime/dtype.h>

#pragma GCC visibility push(default)
namespace coshard {
namespace nn {

enum class RopeType : std::uint8_t { Default, Linear, Dynamic, Llama3, Yarn };
enum class HiddenAct : std::uint8_t { Silu, Gelu, GeluTanh };  // gelu by erf, or by tanh
enum class LayerType : std::uint8_t { Full, Sliding };         // attention

// Rotary positions: rope_parameters of transformers 5, rope_theta and rope_scaling before.
struct RopeConfig {
  RopeType type = RopeType::Default;
  double theta = 10000;
  double factor = 1;                                  // of all but Default
  std::int64_t original_max_position_embeddings = 0;  // Llama3, Yarn; 0: the config's maximum
  double low_freq_factor = 1, high_freq_factor = 4;   // Llama3
  // Yarn. attention_factor multiplies cosines and sines; by default it follows from the others.
  std::optional<double> attention_factor, mscale, mscale_all_dim;
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

// The text of the config.json that a config was read from. No part of its value: all are equal.
struct ConfigText {
  std::string text;
  std::vector<std::string> ignored{};  // ReadConfigOptions
  friend bool operator==(const ConfigText&, const ConfigText&) { return true; }
};

// Defaults are those of a Llama; dtype is that of the parameters created here.
struct CausalLMConfig {
  std::string model_type = "llama";  // or mistral, qwen2, qwen3, gemma: how it is written
  std::int64_t vocab_size = 32000;
  std::int64_t hidden_size = 4096;
  std::int64_t intermediate_size = 11008;
  std::int64_t num_hidden_layers = 32;
  std::int64_t num_attention_heads = 32;
  std::int64_t num_key_value_heads = 0;  // 0: num_attention_heads
  std::int64_t head_dim = 0;             // 0: hidden_size / num_attention_heads
  HiddenAct hidden_act = HiddenAct::Silu;
  std::int64_t max_position_embeddings = 2048;  // for Dynamic, and RopeConfig's default
  double rms_norm_eps = 1e-6;
  double initializer_range = 0.02;
  RopeConfig rope = {};
  bool qkv_bias = false, o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;                  // RMSNorm of each head of q and k, before the positions
  std::int64_t sliding_window = 0;       // a query sees the last `sliding_window` keys; 0: all
  std::vector<LayerType> layer_types{};  // which layers slide; empty: all, if there is a window
  bool norm_offset = false;              // norms multiply by 1 + weight
  bool embedding_scale = false;          // by sqrt(hidden_size), rounded to the dtype
  double attention_dropout = 0;          // forward in training refuses another value
  std::optional<std::int64_t> pad_token_id = std::nullopt;  // whose embedding gets no gradient
  bool tie_word_embeddings = false;
  DType dtype = DType::F32;
  ConfigText read_from{};

  friend bool operator==(const CausalLMConfig&, const CausalLMConfig&) = default;
};

// With sizes that were left 0 filled in, and without layer_types that are all alike. Error{BadInput}: sizes that do not divide; an odd head_dim;
// layer_types that are not one per layer, or slide without a window.
CausalLMConfig checked(CausalLMConfig config);
// Whether layer `layer` sees sliding_window keys only.
bool slides(const CausalLMConfig& config, std::int64_t layer);

// The frequencies of a sequence of `seq` positions, in the f32 arithmetic of transformers. They
// depend on `seq` for Dynamic alone, beyond max_position_embeddings.
RotaryTable rotary_table(const RopeConfig& rope, std::int64_t head_dim,
                         std::int64_t max_position_embeddings, std::int64_t seq);

}  // namespace nn
}  // namespace coshard
#pragma GCC visibility pop
