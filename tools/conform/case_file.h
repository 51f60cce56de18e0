#pragma once
// NAME.json and NAME.safetensors of a directory, as cases. Immutable once read; any thread.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/conform/safetensors.h"

namespace coshard::conform {

using Json = nlohmann::json;

struct Case {
  std::string name;
  Json spec;  // the case's object
  std::shared_ptr<const TensorFile> tensors;
  int ranks() const;  // product of the mesh's shape
};

// The cases of one file. Error{BadInput}: it is not JSON, or not of this format.
std::vector<Case> read_cases(const std::string& json_path);
// Every *.json of a directory, by name. Error{BadInput} when there is none.
std::vector<std::string> case_files(const std::string& directory);

}  // namespace coshard::conform
