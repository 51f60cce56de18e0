#pragma once
// What general compressors make of a text, to compare a model's bits per byte with. Blocks the
// calling thread.
#include <optional>
#include <string>
#include <vector>

namespace coshard::train {

struct Compressor {
  std::string name;                     // "gzip -9"
  std::optional<double> bits_per_byte;  // nothing when it is not installed
};

// gzip -9, bzip2 -9 and xz -9 on the file at `path`, which has `bytes` bytes.
std::vector<Compressor> compressors_on(const std::string& path, std::size_t bytes);

}  // namespace coshard::train
