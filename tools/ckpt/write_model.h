#pragma once
// A new folder of a model, and what is said of it. In main.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <coshard/runtime/dtype.h>
#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/file_layout.h"
#include "dtensor/checkpoint/new_folder.h"

namespace coshard::tools {

using TextFiles = std::vector<std::pair<std::string, std::string>>;  // name and content

// Makes the folder `to`: `tensor` writes one to its place, in the order of the files' bytes; `more`,
// if there is one, writes other files. Errors: as NewFolder, of the option --overwrite, and OutputFile.
void write_model(const FileLayout& layout, const TextFiles& texts, const std::string& to,
                 bool overwrite,
                 const std::function<void(const FileLayout::Place&, OutputFile&)>& tensor,
                 const std::function<void(const NewFolder&)>& more = {});

// Rounds `count` elements of floating-point types to nearest even, as torch's Tensor.to. How many finite ones have become
// infinite.
std::uint64_t cast_values(DType from, std::span<const std::byte> values, DType to,
                          std::span<std::byte> made, std::uint64_t count);

struct Written {
  std::size_t tensors = 0, cast = 0;
  std::map<std::string, std::uint64_t> overflown{};  // values that have become infinite, by name
  std::vector<std::string> left_out{};               // files that were too large to be copied
  std::optional<std::size_t> adapted{};              // tensors to which merge() has added
};
void print_written(const Written& written, const FileLayout& layout, std::optional<DType> dtype,
                   bool json, std::ostream& out);

}  // namespace coshard::tools
