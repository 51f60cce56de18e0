#include "tools/simulate/models.h"

#include <fstream>

#include <coshard/runtime/error.h>
#include "profiling/input_file.h"
#include "profiling/json.h"
#include "tools/simulate/figures.h"

namespace coshard::tools {
namespace {

struct Preset {
  const char* name;
  std::int64_t vocab, hidden, intermediate, layers, heads, key_heads;
};
// config.json of meta-llama/Meta-Llama-3-8B and -70B.
constexpr Preset kPresets[] = {{"llama-8b", 128256, 4096, 14336, 32, 32, 8},
                               {"llama-70b", 128256, 8192, 28672, 80, 64, 8}};

// Of a width, of heads and their dimensions, of layers.
constexpr std::int64_t kWidest = 10'000'000, kMostOfHeads = 10'000, kMostLayers = 1000;

nn::CausalLMConfig config_of(const Preset& p) {
  nn::CausalLMConfig config;
  config.vocab_size = p.vocab;
  config.hidden_size = p.hidden;
  config.intermediate_size = p.intermediate;
  config.num_hidden_layers = p.layers;
  config.num_attention_heads = p.heads;
  config.num_key_value_heads = p.key_heads;
  config.rope.theta = 500000;
  return config;
}

nn::CausalLMConfig from_file(const std::string& name) {
  std::ifstream file =
      open_input(name, "--model",
                 str_cat("; expected ", listed(model_presets()), " or a Llama's config.json"));
  const Json json = Json::parse(file, nullptr, false);
  CS_REQUIRE(json.is_object(), "--model ", name, ": is not a JSON object");
  if (const auto type = json.find("model_type"); type != json.end())
    CS_REQUIRE(*type == "llama", "--model ", name, ": model_type ", json_text(*type),
               " is not \"llama\"");
  if (const auto act = json.find("hidden_act"); act != json.end())
    CS_REQUIRE(*act == "silu", "--model ", name, ": hidden_act ", json_text(*act),
               " is not \"silu\"");
  if (const auto bits = json.find("quantization_config"); bits != json.end() && !bits->is_null())
    fail(ErrorKind::BadInput,
         str_cat("--model ", name, ": has a quantization_config; a simulation computes in bf16"));
  nn::CausalLMConfig config;
  std::vector<std::string> missing;
  const auto take = [&](const char* key, std::int64_t& value, std::int64_t most, bool required) {
    const auto found = json.find(key);
    if (found == json.end() || found->is_null()) {
      if (required) missing.emplace_back(key);
      return;
    }
    CS_REQUIRE(found->is_number_integer() && *found > 0 && *found <= most, "--model ", name, ": ",
               key, " ", json_text(*found), " is not a number from 1 to ", most);
    value = found->get<std::int64_t>();
  };
  const auto take_flag = [&](const char* key, bool& value) {
    const auto found = json.find(key);
    if (found == json.end() || found->is_null()) return;
    CS_REQUIRE(found->is_boolean(), "--model ", name, ": ", key, " ", json_text(*found),
               " is not true or false");
    value = found->get<bool>();
  };
  take("vocab_size", config.vocab_size, kWidest, true);
  take("hidden_size", config.hidden_size, kWidest, true);
  take("intermediate_size", config.intermediate_size, kWidest, true);
  take("num_hidden_layers", config.num_hidden_layers, kMostLayers, true);
  take("num_attention_heads", config.num_attention_heads, kMostOfHeads, true);
  take("num_key_value_heads", config.num_key_value_heads, kMostOfHeads, false);
  take("head_dim", config.head_dim, kMostOfHeads, false);
  take_flag("attention_bias", config.qkv_bias);
  config.o_bias = config.qkv_bias;
  take_flag("mlp_bias", config.mlp_bias);
  take_flag("tie_word_embeddings", config.tie_word_embeddings);
  CS_REQUIRE(missing.empty(), "--model ", name, ": lacks ", listed(missing));
  return config;
}

}  // namespace

std::vector<std::string> model_presets() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

nn::CausalLMConfig llama_config(const std::string& text) {
  nn::CausalLMConfig config;
  bool found = false;
  for (const Preset& preset : kPresets) {
    if (text != preset.name) continue;
    config = config_of(preset);
    found = true;
  }
  if (!found) config = from_file(text);
  if (config.num_key_value_heads == 0) config.num_key_value_heads = config.num_attention_heads;
  if (config.head_dim == 0 && config.hidden_size % config.num_attention_heads == 0)
    config.head_dim = config.hidden_size / config.num_attention_heads;
  config.dtype = DType::BF16;
  return config;
}

}  // namespace coshard::tools
