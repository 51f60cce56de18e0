#pragma once
// The models that can be simulated. Pure functions.
#include <string>
#include <vector>

#include <coshard/styles/nn/causal_lm.h>

namespace coshard::tools {

std::vector<std::string> model_presets();
// A preset, or a Hugging Face config.json, as nn::read_config reads it; dtype bf16. Error{BadInput}:
// as that; a model of a size that no machine has; no preset and no file, with the presets.
nn::CausalLMConfig llama_config(const std::string& text);

}  // namespace coshard::tools
