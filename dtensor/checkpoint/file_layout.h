#pragma once
// How tensors are laid out in new safetensors files, which depends on their names, types and shapes
// alone. Pure.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/checkpoint/safetensors.h"

namespace coshard {

struct NewTensor {
  std::string name;
  StoredType type;
  std::vector<std::uint64_t> shape;
};

struct FileLayout {
  struct File {
    std::string name;    // "model.safetensors", "model-00001-of-00002.safetensors"
    std::string head;    // length and header; data begin after it, at a multiple of 4096
    std::int64_t bytes;  // of the whole file
  };
  struct Place {
    std::size_t tensor;  // its number among those given
    std::size_t file;
    std::int64_t begin, end;  // bytes of the file
  };
  std::vector<File> files;
  std::vector<Place> places;  // in order of file and place
  std::string index;          // `stem`.safetensors.index.json; "": one file needs none
};

// Wide types first, then by name, as safetensors and transformers write them; files of at most
// `file_bytes` of tensors, filled in this order, a larger tensor alone. `stem`: "model", or
// with a folder before it.
// Error{BadInput}: a name that is no UTF-8; a header of more than 100 MB.
FileLayout lay_out(const std::vector<NewTensor>& tensors, std::int64_t file_bytes,
                   std::string_view stem);

}  // namespace coshard
