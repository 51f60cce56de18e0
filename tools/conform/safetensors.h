#pragma once
// A safetensors file in memory. Immutable once read; any thread.
#include <string>
#include <vector>

#include <coshard/dtensor/mesh/shape.h>
#include "dtensor/checkpoint/safetensors.h"

namespace coshard::conform {

struct CaseTensor {
  DType dtype = DType::F32;
  Shape shape;
  const std::byte* data = nullptr;  // row-major, inside the file's memory
  // Element `at` as a double; an integer or boolean exactly, for magnitudes below 2^53.
  double value(std::int64_t at) const;
};

class TensorFile {
 public:
  // Error{BadInput} as SafetensorsHeader::of_file.
  explicit TensorFile(const std::string& path);
  // Error{BadInput} names a key that is not there, or a dtype that tensors do not have.
  CaseTensor at(const std::string& key) const;

 private:
  SafetensorsHeader header_;
  std::vector<std::byte> bytes_;  // of all tensors
};

}  // namespace coshard::conform
