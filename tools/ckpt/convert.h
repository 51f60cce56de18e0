#pragma once
// `coshard ckpt convert`: the tensors of a model's files in another dtype, or in files of other sizes.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>

#include <coshard/runtime/dtype.h>

namespace coshard::tools {

struct ConvertOptions {
  std::optional<DType> dtype = std::nullopt;  // of floating-point tensors; default: their own
  std::int64_t file_bytes = 5'000'000'000;    // of tensors per file, at most, as SaveOptions
  bool overwrite = false;
};

// What is added to tensors of floating-point types as they are written.
class AddedTerms {
 public:
  virtual ~AddedTerms() = default;
  virtual std::size_t size() const = 0;  // tensors
  virtual bool has(std::string_view tensor) const = 0;
  // To elements `first`, first + 1, … of the tensor, row-major.
  virtual void add(std::string_view tensor, std::uint64_t first, std::span<double> to) const = 0;
};

// Writes the model of `from`, a Hugging Face folder or a safetensors file, into a new folder as `save`
// lays it out, with the other files of `from`, of up to 100 MB, but weights of any framework and
// training/, and without metadata of the files; config.json says the new dtype. Rounds to nearest
// even, as torch's Tensor.to. Memory of 64 MiB, whatever the model's size, or of the largest file.
// In main. Error{BadInput}: as ModelFolder; bytes that do not have the hashes of a checkpoint; with a
// dtype: a tensor of a type that cannot be cast, or a quantized model; a folder that is not empty, or below one that is not there.
// Error{DeviceFailed}: the system's error.
void convert(const std::string& from, const std::string& to, const ConvertOptions& options,
             bool json, std::ostream& out, const AddedTerms* terms = nullptr);

}  // namespace coshard::tools
