#pragma once
// Bits per byte of general-purpose compressors on a text, as a baseline for the model's. Blocks the
// calling thread.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coshard::train {

struct Compressor {
  std::string name;                     // "gzip -9"
  std::optional<double> bits_per_byte;  // nullopt: not installed
};

// gzip -9, bzip2 -9 and xz -9.
std::vector<Compressor> compressors_on(std::string_view text);

}  // namespace coshard::train
