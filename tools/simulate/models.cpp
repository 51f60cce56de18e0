#include "tools/simulate/models.h"

#include <fstream>
#include <iterator>
#include <utility>

#include <coshard/runtime/error.h>
#include "profiling/input_file.h"
#include "styles/nn/config_text.h"
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
                 str_cat("; expected ", listed(model_presets()), " or a model's config.json"));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const nn::CausalLMConfig config = nn::config_of_text(std::move(text), name, {});
  const auto require = [&](const char* key, std::int64_t value, std::int64_t most) {
    CS_REQUIRE(value <= most, "--model ", name, ": ", key, " ", value, " is more than ", most);
  };
  require("vocab_size", config.vocab_size, kWidest);
  require("hidden_size", config.hidden_size, kWidest);
  require("intermediate_size", config.intermediate_size, kWidest);
  require("num_hidden_layers", config.num_hidden_layers, kMostLayers);
  require("num_attention_heads", config.num_attention_heads, kMostOfHeads);
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
  config.dtype = DType::BF16;
  return config;
}

}  // namespace coshard::tools
