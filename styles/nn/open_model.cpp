#include <coshard/styles/nn/open_model.h>

#include <filesystem>
#include <optional>
#include <string_view>

#include <coshard/dtensor/distribute/deferred_init.h>
#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/manifest.h"

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

}  // namespace

std::shared_ptr<CausalLM> open_model(const std::string& folder, World& world,
                                     const OpenModelOptions& options) {
  const std::optional<Manifest> manifest = Manifest::of(folder);
  const auto compare = [&](const std::string& name, std::string_view text) {
    if (manifest) manifest->require_text(folder, name, text);
  };
  CausalLMConfig config = read_config(folder, {.ignore = options.ignore});
  compare("config.json", config.read_from.text);
  if (options.dtype) config.dtype = *options.dtype;
  const DeferredInit deferred;
  const auto model = std::make_shared<CausalLM>(config, world);
  std::error_code error;
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
