#pragma once
// Hugging Face's config.json of a CausalLM, read strictly: model_type llama, mistral, qwen2, qwen3.
// Any thread.
#include <coshard/styles/nn/causal_lm_config.h>

#pragma GCC visibility push(default)
namespace coshard {
namespace nn {

struct ReadConfigOptions {
  // Keys that are left out, also those of rope_scaling and rope_parameters, by their own name.
  std::vector<std::string> ignore{};
};

// Reads `folder`/config.json, or the file itself. Both spellings give one config: rope_parameters of
// transformers 5 or rope_theta and rope_scaling, dtype or torch_dtype. Absent keys have the family's
// defaults. Every key is one that the config has, one without effect on what is computed, or an
// error. Error{BadInput}, one line with file, key and value: a key or value that changes the model
// and is not supported; a key that is not known; a wrong type; two spellings that differ.
CausalLMConfig read_config(const std::string& folder, const ReadConfigOptions& options = {});

// The config.json of a config, which transformers 4 and 5 read. One that was read is as it was, except
// for a dtype that has changed. Error{BadInput}: the config's model_type cannot say something that
// it holds.
std::string config_text(const CausalLMConfig& config);
// Writes it to `folder`/config.json; call it on one rank. The folder must be there. Error{BadInput}:
// also the system's error.
void write_config(const CausalLMConfig& config, const std::string& folder);

}  // namespace nn
}  // namespace coshard
#pragma GCC visibility pop
