#pragma once
// The models that can be simulated. Pure functions.
#include <string>
#include <vector>

#include <coshard/styles/nn/causal_lm.h>

namespace coshard::tools {

std::vector<std::string> model_presets();
// A preset, or a file with the keys of Hugging Face's config.json for a Llama; dtype bf16.
// Error{BadInput} names the presets, or the file and its missing keys; another model_type.
nn::CausalLMConfig llama_config(const std::string& text);

}  // namespace coshard::tools
