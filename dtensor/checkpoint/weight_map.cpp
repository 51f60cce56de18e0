#include "dtensor/checkpoint/weight_map.h"

#include <algorithm>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/strict_json.h"

namespace coshard {

class WeightMapReader final : public JsonEvents {
 public:
  WeightMapReader(WeightMap& to, std::string_view path) : to_(to), path_(path) {}

  void begin_object() override { begin(true); }
  void begin_array() override { begin(false); }
  void end_object() override { --depth_; }
  void end_array() override { --depth_; }
  void key(std::string_view name) override {
    if (depth_ == 1) {
      in_map_ = name == "weight_map";
      CS_REQUIRE(!in_map_ || !has_map_, path_, ": has weight_map twice");
      has_map_ = has_map_ || in_map_;
    } else if (in_map_) {
      const std::size_t at = to_.names_.size();
      tensor_ = std::string_view(to_.names_.append(name)).substr(at);
    }
  }
  void text(std::string_view file) override;
  void count(std::uint64_t value) override { other(std::to_string(value)); }
  void other(std::string_view value) override {
    if (in_map_) require_map(false, value);
  }
  void require_unique() const;

 private:
  void begin(bool is_object) {
    if (in_map_) require_map(depth_ == 1 && is_object, is_object ? "an object" : "an array");
    ++depth_;
  }
  void require_map(bool holds, std::string_view got) const {
    CS_REQUIRE(holds, path_, ": weight_map has ", shortened(got),
               depth_ == 1 ? "" : str_cat(" for '", shortened(tensor_), "'"),
               ", but it is an object of a file's name for each tensor");
  }

  WeightMap& to_;
  std::string_view path_, tensor_;
  int depth_ = 0;
  bool in_map_ = false, has_map_ = false;
};

void WeightMapReader::text(std::string_view file) {
  constexpr std::size_t kMaxFiles = 65'536;
  if (!in_map_) return;
  require_map(depth_ == 2, "a text");
  const bool is_name = std::ranges::none_of(
      file, [](char c) { return c == '/' || c == '\\' || static_cast<unsigned char>(c) < ' '; });
  CS_REQUIRE(is_name && file.ends_with(".safetensors"), path_, ": tensor '", shortened(tensor_),
             "' is in '", shortened(file),
             "', which is not the name of a safetensors file of the folder");
  auto found = to_.files_.find(file);
  if (found == to_.files_.end()) {
    CS_REQUIRE(to_.files_.size() < kMaxFiles, path_, ": names more than ", kMaxFiles, " files");
    found = to_.files_.emplace(file, std::vector<std::string_view>()).first;
  }
  found->second.push_back(tensor_);
}

void WeightMapReader::require_unique() const {
  CS_REQUIRE(has_map_, path_, ": has no weight_map");
  CS_REQUIRE(!to_.files_.empty(), path_, ": its weight_map has no tensor");
  std::vector<std::string_view> all;
  for (const auto& [file, tensors] : to_.files_)
    all.insert(all.end(), tensors.begin(), tensors.end());
  std::ranges::sort(all);
  const auto twice = std::ranges::adjacent_find(all);
  CS_REQUIRE(twice == all.end(), path_, ": has tensor '", shortened(*twice), "' twice");
}

WeightMap::WeightMap(std::string_view text, std::string_view path) {
  names_.reserve(text.size());  // names are no longer than what is written
  WeightMapReader reader(*this, path);
  read_json(text, path, reader);
  reader.require_unique();
}

}  // namespace coshard
