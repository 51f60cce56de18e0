#include <coshard/styles/nn/open_model.h>

#include <filesystem>
#include <optional>
#include <string_view>

#include <coshard/dtensor/distribute/deferred_init.h>
#include <coshard/styles/nn/causal_lm.h>
#include <coshard/styles/nn/gpt2.h>
#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/manifest.h"
#include "styles/nn/config_values.h"

namespace coshard::nn {
namespace {

constexpr const char* kTokenizerFiles[] = {"generation_config.json",
                                           "tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "chat_template.jinja",
                                           "vocab.json",
                                           "merges.txt",
                                           "tokenizer.model"};

constexpr std::uint64_t kMostOfFile = 1'000'000'000;

std::shared_ptr<LanguageModel> model_of(const ConfigFile& file, World& world,
                                        const OpenModelOptions& options) {
  const ConfigJson json = parse_config(file.text, file.path);
  ConfigKeys keys(json, file.path, "", options.ignore);
  const auto made = [&]<class Model>(auto config, std::type_identity<Model>) {
    if (options.dtype) config.dtype = *options.dtype;
    return std::make_shared<Model>(config, world);
  };
  if (keys.text("model_type") == "gpt2")
    return made(gpt2_config_of_text(file.text, file.path, options.ignore),
                std::type_identity<GPT2>());
  return made(config_of_text(file.text, file.path, options.ignore), std::type_identity<CausalLM>());
}

}  // namespace

std::shared_ptr<LanguageModel> open_model(const std::string& folder, World& world,
                                          const OpenModelOptions& options) {
  const std::optional<Manifest> manifest = Manifest::of(folder);
  const auto compare = [&](const std::string& name, std::string_view text) {
    if (manifest) manifest->require_text(folder, name, text);
  };
  const ConfigFile file = config_file(folder);
  compare("config.json", file.text);
  const DeferredInit deferred;
  const std::shared_ptr<LanguageModel> model = model_of(file, world, options);
  std::error_code error;
  const std::filesystem::path place = std::filesystem::absolute(folder, error);
  model->folder = (place / "").lexically_normal().parent_path().string();
  for (const char* name : kTokenizerFiles) {
    const std::string path = (std::filesystem::path(folder) / name).string();
    if (!std::filesystem::exists(path, error)) {
      CS_REQUIRE(!manifest || !manifest->files().contains(name), path,
                 ": is missing, and was written with the checkpoint");
      continue;
    }
    std::string& text = model->tokenizer_files[name];
    text = read_text(path, kMostOfFile);
    compare(name, text);
  }
  return model;
}

}  // namespace coshard::nn
