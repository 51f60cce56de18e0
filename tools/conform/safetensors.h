#pragma once
// Reads a safetensors file (8-byte header length, JSON header, data): named tensors in memory.
// Immutable once read; any thread.
#include <map>
#include <string>
#include <vector>

#include <coshard/dtensor/shape.h>
#include <coshard/runtime/dtype.h>

namespace coshard::conform {

struct StoredTensor {
  DType dtype = DType::F32;
  Shape shape;
  const std::byte* data = nullptr;  // row-major, inside the file's memory
  // Element `at` as a double; an integer or boolean exactly, for magnitudes below 2^53.
  double value(std::int64_t at) const;
};

class TensorFile {
 public:
  // Error{BadInput} names the file and what is wrong with it: it cannot be read, its header is not
  // JSON, a dtype is unknown, or a tensor's bytes do not match its shape or lie outside the file.
  explicit TensorFile(const std::string& path);
  // Error{BadInput} names a key that is not there.
  const StoredTensor& at(const std::string& key) const;

 private:
  std::string path_;
  std::vector<std::byte> bytes_;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace coshard::conform
