#pragma once
// The tensors of a Hugging Face folder. Immutable once read; any thread.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/checkpoint/safetensors.h"

namespace coshard {

// What a folder says of its tensors: its index, if there is one, and the headers of its files.
struct FolderText {
  std::string stem;               // "model", or of other files, such as "training/optimizer"
  std::string index_path, index;  // "": one file needs none
  std::vector<HeaderText> files;

  // A folder with model.safetensors or else with model.safetensors.index.json and the files that this
  // names, or the path of one safetensors file. Error{BadInput}, one line with file: as HeaderText; a
  // file that the index names is missing or lies elsewhere.
  static FolderText of(const std::string& path, std::string_view stem = "model");
};

class ModelFolder {
 public:
  struct Place {
    std::size_t file;  // in files()
    StoredTensor tensor;
  };

  // Error{BadInput}, one line with file and tensor: as SafetensorsHeader; a file lacks a tensor that
  // the index says it has; a tensor is in two files.
  explicit ModelFolder(const FolderText& text);
  // Error{BadInput}: also as FolderText.
  explicit ModelFolder(const std::string& path) : ModelFolder(FolderText::of(path)) {}

  const std::vector<SafetensorsHeader>& files() const { return files_; }
  std::string name_of_file(std::size_t file) const;  // its path in the folder
  // That of the index; "": there is none.
  const std::string& index() const { return index_; }
  std::size_t size() const { return by_name_.size(); }
  std::uint64_t bytes() const;            // of all tensors
  Place operator[](std::size_t i) const;  // by name
  std::optional<Place> find(std::string_view name) const;

 private:
  struct Entry {
    std::size_t file, tensor;
  };
  std::string_view name_of(const Entry& entry) const {
    return files_[entry.file][entry.tensor].name;
  }

  std::string inside_, index_;  // "training/" of "training/optimizer"
  std::vector<SafetensorsHeader> files_;
  std::vector<Entry> by_name_;
};

}  // namespace coshard
