#include "dtensor/checkpoint/model_folder.h"

#include <algorithm>
#include <filesystem>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/strict_json.h"
#include "dtensor/checkpoint/weight_map.h"

namespace coshard {
namespace {

constexpr std::uint64_t kMaxIndex = 100'000'000;

std::string text_of_index(const std::string& path) {
  const InputFile file(path);
  CS_REQUIRE(file.size() <= kMaxIndex, path, ": an index of ", file.size(), " bytes; at most ",
             kMaxIndex);
  std::string text(file.size(), ' ');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

// The files of the folder, or the file itself; `used` becomes the path of the index.
std::vector<SafetensorsHeader> headers_of(const std::string& path, std::string_view stem,
                                          std::string& used) {
  std::vector<SafetensorsHeader> headers;
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    headers.push_back(SafetensorsHeader::of_file(path));
    return headers;
  }
  const auto at = [&](std::string_view name) {
    return (std::filesystem::path(path) / name).string();
  };
  const std::string name_of_whole = str_cat(stem, ".safetensors");
  const std::string whole = at(name_of_whole), index = at(name_of_whole + ".index.json");
  if (is_there(whole)) {  // as transformers prefers it
    headers.push_back(SafetensorsHeader::of_file(whole));
    return headers;
  }
  CS_REQUIRE(is_there(index), path, ": has neither ", name_of_whole, " nor ", name_of_whole,
             ".index.json; of another file give the path");
  used = name_of_whole + ".index.json";
  const std::string inside(stem.substr(0, stem.rfind('/') + 1));
  const WeightMap map(text_of_index(index), index);
  for (const auto& [file, tensors] : map.files()) {
    const std::string name = inside + file;
    CS_REQUIRE(is_there(at(name)), at(name), ": is missing, and with it ", names_text(tensors));
    const SafetensorsHeader& header = headers.emplace_back(SafetensorsHeader::of_file(at(name)));
    std::vector<std::string_view> absent;
    for (const std::string_view tensor : tensors)
      if (!header.find(tensor)) absent.push_back(tensor);
    CS_REQUIRE(absent.empty(), at(name), ": lacks ", names_text(absent), ", which ", index,
               " says it has");
  }
  return headers;
}

}  // namespace

ModelFolder::ModelFolder(const std::string& path, std::string_view stem)
    : inside_(stem.substr(0, stem.rfind('/') + 1)), files_(headers_of(path, stem, index_)) {
  for (std::size_t file = 0; file < files_.size(); ++file)
    for (std::size_t i = 0; i < files_[file].size(); ++i) by_name_.push_back({file, i});
  const auto name = [this](const Entry& entry) { return name_of(entry); };
  std::ranges::stable_sort(by_name_, {}, name);
  const auto twice = std::ranges::adjacent_find(by_name_, {}, name);
  CS_REQUIRE(twice == by_name_.end(), "tensor '", shortened(name_of(*twice)), "' is in ",
             files_[twice->file].path(), " and in ", files_[(twice + 1)->file].path());
}

std::string ModelFolder::name_of_file(std::size_t file) const {
  return inside_ + std::filesystem::path(files_[file].path()).filename().string();
}

ModelFolder::Place ModelFolder::operator[](std::size_t i) const {
  const Entry& entry = by_name_[i];
  return {entry.file, files_[entry.file][entry.tensor]};
}

std::uint64_t ModelFolder::bytes() const {
  std::uint64_t bytes = 0;
  for (const SafetensorsHeader& file : files_) bytes += file.file_bytes() - file.data_begin();
  return bytes;
}

std::optional<ModelFolder::Place> ModelFolder::find(std::string_view name) const {
  const auto found =
      std::ranges::lower_bound(by_name_, name, {}, [this](const Entry& e) { return name_of(e); });
  if (found == by_name_.end() || name_of(*found) != name) return std::nullopt;
  return (*this)[static_cast<std::size_t>(found - by_name_.begin())];
}

}  // namespace coshard
