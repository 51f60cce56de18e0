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
  std::int64_t vocab_size, intermediate_size, max_position_embeddings;  // defaults
  std::int64_t key_value_heads, head_dim;  // defaults; 0: follow from the others
  bool attention_bias, mlp_bias;           // whether the keys of these names are read
  bool qkv_bias, qk_norm;                  // of every model
  Window window;
};

const ConfigFamily* find_family(const std::string& model_type);  // null: not supported
std::string family_names();

enum class KeyEffect : std::uint8_t {
  None,     // inert: it changes nothing that a CausalLM computes, or says what is so anyway
  Refused,  // it changes the model
  Unknown,
};
// Of a key that a reader of this family does not take.
KeyEffect effect_of(const ConfigFamily& family, const std::string& key, const ConfigJson& value);

}  // namespace coshard::nn
