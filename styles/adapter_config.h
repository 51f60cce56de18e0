#pragma once
// PEFT's folder of a LoRA adapter: adapter_config.json and the names in adapter_model.safetensors.
// Any thread.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/styles/nn/linear.h>
#include "dtensor/checkpoint/safetensors.h"

namespace coshard {

inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterStem = "adapter_model";

// What a key, such as target_modules, says of the layers that have adapters.
struct LayerRule {
  std::string key;
  std::function<bool(std::string_view path)> admits;
};

struct AdapterConfig {
  nn::LoraOptions options;
  std::vector<LayerRule> rules;  // PEFT applies an adapter that all of them admit
};

// Error{BadInput} with file, key and value: what is no LoRA, or changes the result and is not
// supported; a key that is not known, unless its value is null, false, 0 or empty; a regular
// expression that may have another meaning in Python; adapter_model.bin alone.
AdapterConfig read_adapter_config(const std::string& folder);
// `base`: the folder of the model without adapters, which PEFT's Auto classes open; "": null.
std::string adapter_config_text(const nn::LoraOptions& options,
                                const std::vector<std::string>& targets,
                                const std::string& base = "");

// Of the tensors of one layer.
std::string lora_name(std::string_view path, char which);  // 'A' or 'B'

// The layers that a file has adapters of, in the order of their names. Error{BadInput} with file and
// tensor: one of another name; shapes that are not [rank, in] and [out, rank]; one of the two alone;
// a layer that a rule of the config does not admit.
std::vector<std::string> adapted_paths(const SafetensorsHeader& file, const AdapterConfig& config);

}  // namespace coshard
