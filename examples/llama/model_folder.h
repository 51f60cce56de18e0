#pragma once
// The folder that a command names: of a model, not of an adapter.
#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/manifest.h"
#include "dtensor/checkpoint/model_folder.h"

namespace coshard::llama {

// Error{BadInput}: it is none of a model.
inline void refuse_file(const std::string& file) {
  std::array<char, 4> magic = {};
  std::ifstream(file, std::ios::binary).read(magic.data(), magic.size());
  CS_REQUIRE(std::string_view(magic.data(), magic.size()) != "GGUF", file,
             ": is a GGUF file; convert it first: coshard ckpt convert ", file, " FOLDER");
  fail(ErrorKind::BadInput, str_cat(file, ": is a file, not a model's folder; give that"));
}

// A checkpoint of LoRA training has base and adapters.
inline bool has_adapters(const std::string& folder) {
  const ModelFolder model(folder);
  for (std::size_t i = 0; i < model.size(); ++i)
    if (model[i].tensor.name.ends_with(".lora_A.weight")) return true;
  return false;
}

// `folder`. Error{BadInput}: it is none, or has an adapter alone, or adapters beside the model.
inline const std::string& model_folder(const std::string& folder) {
  std::error_code ignored;
  const auto has = [&](std::string_view name) {
    return std::filesystem::exists(std::filesystem::path(folder) / name, ignored);
  };
  CS_REQUIRE(std::filesystem::exists(folder, ignored), folder, ": there is no such folder");
  if (!std::filesystem::is_directory(folder, ignored)) refuse_file(folder);
  CS_REQUIRE(has("config.json") || !has("adapter_config.json"), folder,
             ": has an adapter without its model; `coshard ckpt merge BASE ", folder,
             " OUT` adds it to the model in BASE");
  CS_REQUIRE(
      !has(Manifest::kPath) || !has_adapters(folder), folder,
      ": is a checkpoint of LoRA training; `finetune --resume` saves its adapter, and `coshard "
      "ckpt merge BASE ADAPTER OUT` makes a model of it");
  return folder;
}

// Error{BadInput}: there is no adapter of PEFT.
inline void require_adapter(const std::string& folder) {
  std::error_code ignored;
  CS_REQUIRE(std::filesystem::exists(folder, ignored), folder, ": there is no such folder");
  CS_REQUIRE(
      std::filesystem::exists(std::filesystem::path(folder) / "adapter_config.json", ignored),
      folder,
      ": has no adapter_config.json; give what `finetune --lora --save`, or PEFT, "
      "has written");
}

}  // namespace coshard::llama
