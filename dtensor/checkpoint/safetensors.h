#pragma once
// The header of a safetensors file: names, types, shapes and places of tensors
// (https://github.com/huggingface/safetensors, format as of 0.8). Immutable once read; any thread.
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/runtime/dtype.h>

namespace coshard {

// In the format's order, in which a file's tensors descend.
enum class StoredType : std::uint8_t {
  Bool,
  F4,
  F6_E2M3,
  F6_E3M2,
  U8,
  I8,
  F8_E5M2,
  F8_E4M3,
  F8_E8M0,
  F8_E4M3FNUZ,
  F8_E5M2FNUZ,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  C64,
  F64,
  I64,
  U64,
};
std::string_view to_string(StoredType type);  // "BF16", as in the file
inline std::ostream& operator<<(std::ostream& out, StoredType type) {
  return out << to_string(type);
}
int bits_of(StoredType type);
std::optional<DType> to_dtype(StoredType type);  // none: coshard computes with no such type
StoredType to_stored(DType dtype);

std::string sizes_text(std::span<const std::uint64_t> sizes);  // "[2,3]"

struct StoredTensor {
  std::string_view name;
  StoredType type;
  std::span<const std::uint64_t> shape;
  std::uint64_t begin, end;  // bytes of the data
  std::uint64_t elements() const;
};

// A header as a file has it.
struct HeaderText {
  std::string path, text;
  std::uint64_t data_bytes = 0;  // that follow it
  std::uint64_t identity = 0;    // of the file (InputFile); 0: of no file
  // Error{BadInput}: cannot be read; shorter than its header says; a header of more than 100 MB.
  static HeaderText of_file(const std::string& path);
};

class SafetensorsHeader {
 public:
  // `text`: the JSON; `data_bytes`: how many bytes follow it. Error{BadInput}, one line with `path` and
  // the tensor: what safetensors 0.8 refuses, and beyond that bytes before the first brace, keys twice,
  // more than 65,535 dimensions or 2^21 of all tensors, 64 levels or 65,536 keys of metadata. What it
  // returns refers to it.
  SafetensorsHeader(std::string_view text, std::uint64_t data_bytes, std::string path);
  explicit SafetensorsHeader(const HeaderText& read)
      : SafetensorsHeader(read.text, read.data_bytes, read.path) {
    identity_ = read.identity;
  }
  // Error{BadInput}: as HeaderText, and as above.
  static SafetensorsHeader of_file(const std::string& path) {
    return SafetensorsHeader(HeaderText::of_file(path));
  }

  const std::string& path() const { return path_; }
  std::size_t size() const { return tensors_.size(); }
  StoredTensor operator[](std::size_t i) const;  // in order of their bytes
  std::optional<std::size_t> find(std::string_view name) const;
  // What bytes [begin, end) of the file hold: "the header, 'a', 'b' and 3 more".
  std::string names_in(std::int64_t begin, std::int64_t end) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  std::uint64_t identity() const { return identity_; }  // of the file (InputFile); 0: of no file
  std::uint64_t data_begin() const { return data_begin_; }  // where the data begin in the file
  std::uint64_t file_bytes() const { return data_begin_ + data_bytes_; }

 private:
  friend class HeaderReader;
  struct Entry {
    std::uint64_t begin = 0, end = 0;
    std::uint32_t name = 0, name_size = 0;  // in names_
    std::uint32_t shape = 0;                // in sizes_
    std::uint16_t dims = 0;
    StoredType type = StoredType::U8;
  };
  std::string_view name_of(const Entry& entry) const {
    return std::string_view(names_).substr(entry.name, entry.name_size);
  }
  void require_places() const;

  std::string path_;
  std::uint64_t data_begin_, data_bytes_, identity_ = 0;
  std::string names_;
  std::vector<std::uint64_t> sizes_;
  std::vector<Entry> tensors_;
  std::vector<std::uint32_t> by_name_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace coshard
