#include "tools/conform/case_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <coshard/runtime/error.h>

namespace coshard::conform {

int Case::ranks() const {
  int product = 1;
  for (int size : spec.at("mesh").at("shape")) product *= size;
  return product;
}

std::vector<Case> read_cases(const std::string& json_path) {
  std::ifstream in(json_path);
  const Json file = Json::parse(in, nullptr, false);
  CS_REQUIRE(file.is_object() && file.contains("cases"), json_path,
             ": not a file of conformance cases");
  CS_REQUIRE(file.value("format", 0) == 1, json_path, ": format ", file.value("format", 0),
             ", this reads format 1");
  const std::string stem = json_path.substr(0, json_path.rfind('.'));
  const auto tensors = std::make_shared<const TensorFile>(stem + ".safetensors");
  std::vector<Case> cases;
  for (const Json& entry : file.at("cases")) cases.push_back({entry.at("name"), entry, tensors});
  return cases;
}

std::vector<std::string> case_files(const std::string& directory) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error))
    if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
  CS_REQUIRE(!error, directory, ": ", error.message());
  CS_REQUIRE(!paths.empty(), directory, ": has no *.json");
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace coshard::conform
