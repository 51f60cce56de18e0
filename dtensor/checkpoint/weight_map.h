#pragma once
// The index of a model in several files: {"metadata": …, "weight_map": {"tensor": "file", …}}. Any
// thread.
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace coshard {

class WeightMap {
 public:
  // `path` is for errors. Error{BadInput}, one line with `path` and the tensor: not JSON, no map or no
  // tensor in it, a tensor twice, a file that is not the name of a safetensors file, or more than
  // 65,536 files.
  WeightMap(std::string_view text, std::string_view path);
  WeightMap(const WeightMap&) = delete;
  WeightMap& operator=(const WeightMap&) = delete;

  using TensorsOfFiles = std::map<std::string, std::vector<std::string_view>, std::less<>>;
  const TensorsOfFiles& files() const { return files_; }

 private:
  friend class WeightMapReader;
  std::string names_;  // never moved: files_ looks into it
  TensorsOfFiles files_;
};

}  // namespace coshard
