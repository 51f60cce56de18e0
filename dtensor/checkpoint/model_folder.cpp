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

// The folder of the files within the model's: "training/" of "training/optimizer".
std::string folder_of(std::string_view stem) {
  return std::string(stem.substr(0, stem.rfind('/') + 1));
}

}  // namespace

FolderText FolderText::of(const std::string& path, std::string_view stem) {
  FolderText text{.stem = std::string(stem)};
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    text.files.push_back(HeaderText::of_file(path));
    return text;
  }
  const auto at = [&](std::string_view name) {
    return (std::filesystem::path(path) / name).string();
  };
  const std::string name_of_whole = str_cat(stem, ".safetensors");
  const std::string whole = at(name_of_whole), index = at(name_of_whole + ".index.json");
  if (is_there(whole)) {  // as transformers prefers it
    text.files.push_back(HeaderText::of_file(whole));
    return text;
  }
  CS_REQUIRE(is_there(index), path, ": has neither ", name_of_whole, " nor ", name_of_whole,
             ".index.json; of another safetensors file give the path, and save a model of another "
             "format, such as pytorch_model.bin, as safetensors");
  text.index_path = index;
  text.index = read_text(index, kMaxIndex);
  const WeightMap map(text.index, index);
  for (const auto& [file, tensors] : map.files()) {
    const std::string place = at(folder_of(stem) + file);
    CS_REQUIRE(is_there(place), place, ": is missing, and with it ", names_text(tensors));
    text.files.push_back(HeaderText::of_file(place));
  }
  return text;
}

ModelFolder::ModelFolder(const FolderText& text) : inside_(folder_of(text.stem)) {
  for (const HeaderText& file : text.files) files_.emplace_back(file);
  if (!text.index.empty()) {
    index_ = text.stem + ".safetensors.index.json";
    const WeightMap map(text.index, text.index_path);
    auto header = files_.begin();
    for (const auto& [file, tensors] : map.files()) {
      std::vector<std::string_view> absent;
      for (const std::string_view tensor : tensors)
        if (!header->find(tensor)) absent.push_back(tensor);
      CS_REQUIRE(absent.empty(), header->path(), ": lacks ", names_text(absent), ", which ",
                 text.index_path, " says it has");
      ++header;
    }
  }
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
