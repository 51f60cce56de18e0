#pragma once
// The folder that a command names: of a model, not of an adapter.
#include <filesystem>
#include <string>

#include <coshard/runtime/error.h>

namespace coshard::llama {

// `folder`. Error{BadInput}: it has an adapter alone.
inline const std::string& model_folder(const std::string& folder) {
  std::error_code ignored;
  const auto has = [&](const char* name) {
    return std::filesystem::exists(std::filesystem::path(folder) / name, ignored);
  };
  CS_REQUIRE(has("config.json") || !has("adapter_config.json"), folder,
             ": has an adapter without its model; `coshard ckpt merge BASE ", folder,
             " OUT` adds it to the model in BASE");
  return folder;
}

}  // namespace coshard::llama
