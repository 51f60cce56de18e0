#pragma once
// Bytes of GGUF files, well formed unless a test asks for something else.
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tools/ckpt/gguf.h"

namespace coshard::testing {

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
inline std::string gguf_text(std::string_view text) {
  return raw<std::uint64_t>(text.size()) + std::string(text);
}

class GgufBytes {
 public:
  std::uint32_t version = 3;

  GgufBytes& value(std::string_view key, std::uint32_t type, const std::string& bytes) {
    values_ += gguf_text(key) + raw(type) + bytes;
    ++value_count;
    return *this;
  }
  GgufBytes& u32(std::string_view key, std::uint32_t number) { return value(key, 4, raw(number)); }
  GgufBytes& f32(std::string_view key, float number) { return value(key, 6, raw(number)); }
  GgufBytes& flag(std::string_view key, bool set) {
    return value(key, 7, raw<std::uint8_t>(set ? 1 : 0));
  }
  GgufBytes& text(std::string_view key, std::string_view text) {
    return value(key, 8, gguf_text(text));
  }
  GgufBytes& texts(std::string_view key, const std::vector<std::string>& all) {
    std::string bytes = raw<std::uint32_t>(8) + raw<std::uint64_t>(all.size());
    for (const std::string& one : all) bytes += gguf_text(one);
    return value(key, 9, bytes);
  }
  GgufBytes& i32s(std::string_view key, const std::vector<std::int32_t>& all) {
    std::string bytes = raw<std::uint32_t>(5) + raw<std::uint64_t>(all.size());
    for (const std::int32_t one : all) bytes += raw(one);
    return value(key, 9, bytes);
  }
  // `shape` row-major; placed behind the tensors before it.
  GgufBytes& tensor(std::string_view name, const std::vector<std::uint64_t>& shape,
                    std::uint32_t type, const std::string& bytes) {
    tensors_ += gguf_text(name) + raw(static_cast<std::uint32_t>(shape.size()));
    for (auto size = shape.rbegin(); size != shape.rend(); ++size) tensors_ += raw(*size);
    tensors_ += raw(type) + raw<std::uint64_t>(data_.size());
    data_ += bytes;
    pad(data_);
    ++tensor_count;
    return *this;
  }
  GgufBytes& floats(std::string_view name, const std::vector<std::uint64_t>& shape,
                    const std::vector<float>& values) {
    std::string bytes;
    for (const float value : values) bytes += raw(value);
    return tensor(name, shape, 0, bytes);
  }

  std::string bytes() const {
    std::string all = "GGUF" + raw(version) + raw(tensor_count) + raw(value_count);
    all += values_ + tensors_;
    pad(all);
    return all + data_;
  }

  std::uint64_t tensor_count = 0, value_count = 0;  // as the file says

 private:
  static void pad(std::string& bytes) {
    constexpr std::size_t kAlignment = 32;
    bytes.resize((bytes.size() + kAlignment - 1) / kAlignment * kAlignment);
  }
  std::string values_, tensors_, data_;
};

// "f" names it in errors.
inline tools::ByteSource source_of(std::string bytes) {
  const auto size = static_cast<std::uint64_t>(bytes.size());
  return {"f", size, [bytes = std::move(bytes)](std::uint64_t at, std::span<std::byte> to) {
            std::memcpy(to.data(), bytes.data() + at, to.size());
          }};
}

}  // namespace coshard::testing
