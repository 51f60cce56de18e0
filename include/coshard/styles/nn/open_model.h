#pragma once
// open_model: the model of a Hugging Face folder. Rank's thread.
#include <memory>
#include <optional>
#include <string>

#include <coshard/styles/nn/language_model.h>

#pragma GCC visibility push(default)
namespace coshard {
namespace nn {

struct OpenModelOptions {
  std::optional<DType> dtype = std::nullopt;  // of the parameters; default: the config's
  std::vector<std::string> ignore{};          // as ReadConfigOptions
};

// A model of `folder`/config.json on the world's device: a GPT2 if the model_type is gpt2, else a
// CausalLM. It is made under a DeferredInit: parallelize it, then fill it with load(*model,
// folder), or materialize(*model). All ranks call it, and read the file and those of the tokenizer
// (LanguageModel::tokenizer_files). Error{BadInput}: as read_config; a file that is not what a
// checkpoint's hashes say.
std::shared_ptr<LanguageModel> open_model(const std::string& folder, World& world,
                                          const OpenModelOptions& options = {});

}  // namespace nn
}  // namespace coshard
#pragma GCC visibility pop
