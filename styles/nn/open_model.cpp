#include <coshard/styles/nn/open_model.h>

#include <filesystem>

#include <coshard/dtensor/deferred_init.h>
#include "dtensor/checkpoint/file.h"

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
  CausalLMConfig config = read_config(folder, {.ignore = options.ignore});
  if (options.dtype) config.dtype = *options.dtype;
  const DeferredInit deferred;
  const auto model = std::make_shared<CausalLM>(config, world);
  std::error_code error;
  for (const char* name : kTokenizerFiles) {
    const std::string path = (std::filesystem::path(folder) / name).string();
    if (!std::filesystem::exists(path, error)) continue;
    model->tokenizer_files[name] = read_text(path, kMostOfFile);
  }
  return model;
}

}  // namespace coshard::nn
