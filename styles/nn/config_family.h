#pragma once
// What config.json means for each model_type: defaults, and which keys have an effect. Immutable.
#include <cstdint>
#include <string>

#include "styles/nn/config_text.h"

namespace coshard::nn {

struct ConfigFamily {
  enum class Window : std::uint8_t { None, All, ByLayer };

  const char* model_type;
  const char* architecture;
  // Defaults.
  std::int64_t vocab_size = 32000, hidden_size = 4096, intermediate_size = 11008;
  std::int64_t num_hidden_layers = 32, num_attention_heads = 32;
  std::int64_t key_value_heads = 0, head_dim = 0;  // 0: follow from the others
  std::int64_t max_position_embeddings = 2048;
  std::optional<std::int64_t> pad_token_id = std::nullopt;
  bool tie_word_embeddings = false;
  // Whether the keys of these names are read.
  bool attention_bias = false, mlp_bias = false;
  // Of every model.
  bool qkv_bias = false, qk_norm = false;
  bool gemma = false;  // norm_offset, embedding_scale, gelu by tanh
  Window window = Window::None;
};

const ConfigFamily* find_family(const std::string& model_type);  // null: not supported
std::string family_names();

enum class KeyEffect : std::uint8_t {
  None,     // inert: it changes nothing that a CausalLM computes, or says what is so anyway
  Refused,  // it changes the model
  Unknown,
};
// Of a key that a reader does not take. `biased`: q, k and v have biases, whatever attention_bias
// says.
KeyEffect effect_of(const std::string& key, const ConfigJson& value, bool biased);

}  // namespace coshard::nn
