#pragma once
// PEFT's folder of a LoRA adapter: adapter_config.json and the names in adapter_model.safetensors.
// Any thread.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/styles/nn/linear.h>
#include "dtensor/checkpoint/safetensors.h"

namespace coshard {

inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterStem = "adapter_model";

struct AdapterConfig {
  nn::LoraOptions options;
  // Last parts of the paths of the layers, or whole paths; nullopt: a regular expression, which the
  // names of the tensors stand for.
  std::optional<std::vector<std::string>> targets;
};

// Error{BadInput} with file, key and value: what is no LoRA, or changes the result and is not
// supported; a key that is not known, unless its value is null, false, 0 or empty.
AdapterConfig read_adapter_config(const std::string& folder);
// `base`: the folder of the model without adapters, which PEFT's Auto classes open; "": null.
std::string adapter_config_text(const nn::LoraOptions& options,
                                const std::vector<std::string>& targets,
                                const std::string& base = "");

// Of the tensors of one layer.
std::string lora_name(std::string_view path, char which);  // 'A' or 'B'

// The layers that a file has adapters of, in the order of their names. Error{BadInput} with file and
// tensor: one of another name; shapes that are not [rank, in] and [out, rank]; one of the two alone;
// a layer that the config's targets do not name.
std::vector<std::string> adapted_paths(const SafetensorsHeader& file, const AdapterConfig& config);

}  // namespace coshard
