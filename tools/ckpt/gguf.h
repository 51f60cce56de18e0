#pragma once
// The header of a GGUF file of version 2 or 3: values by key, and names, types, shapes and places of tensors
// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). Immutable once read; any thread.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace coshard::tools {

// Bytes that are read by place; those at the end are within its size.
struct ByteSource {
  std::string path;  // begins each error
  std::uint64_t size = 0;
  std::function<void(std::uint64_t at, std::span<std::byte> to)> read;
};
ByteSource source_of_file(const std::string& path);

enum class GgufType : std::uint32_t { F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q8_0 = 8, BF16 = 30 };

struct GgufBlock {
  std::uint64_t elements, bytes;
};
GgufBlock block_of(GgufType type);

struct GgufTensor {
  std::string name;
  GgufType type;
  std::vector<std::uint64_t> shape;  // row-major, as in PyTorch; rows are whole blocks
  std::uint64_t begin, bytes;        // in the file
};

class Gguf {
 public:
  // Error{BadInput}, one line with path, key or tensor: another version or byte order; counts,
  // lengths and places beyond the file; keys or tensors twice; tensors that overlap, of other types
  // or of more than 4 dimensions; texts that are not UTF-8; keys and names of more than 65535 bytes,
  // texts of more than 16 MiB, and 64 MiB of texts in all.
  explicit Gguf(ByteSource source);

  const std::string& path() const { return source_.path; }
  const ByteSource& source() const { return source_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }

  // Values; none if the key is absent. Error{BadInput}: of another type.
  std::optional<std::int64_t> integer(const std::string& key) const;
  std::optional<float> single(const std::string& key) const;
  std::optional<bool> flag(const std::string& key) const;
  std::optional<std::string> text(const std::string& key) const;
  std::optional<std::vector<std::string>> texts(const std::string& key) const;
  std::optional<std::vector<std::int64_t>> integers(const std::string& key) const;
  // Keys that begin with `prefix`.
  std::vector<std::string> keys(std::string_view prefix) const;

 private:
  // An array stays in the file.
  struct Array {
    std::uint32_t type;
    std::uint64_t count, begin;
  };
  using Value = std::variant<bool, std::int64_t, std::uint64_t, float, double, std::string, Array>;
  class Cursor;

  void read_values(Cursor& in, std::uint64_t count);
  Value read_value(Cursor& in, std::uint32_t type, const std::string& key) const;
  void read_tensors(Cursor& in, std::uint64_t count);
  void place_tensors(std::uint64_t data, std::uint64_t alignment);
  const Value* find(const std::string& key) const;
  [[noreturn]] void refuse(const std::string& key, std::string_view why) const;

  ByteSource source_;
  std::map<std::string, Value> values_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace coshard::tools
