#include "tools/ckpt/dequantize.h"

#include <cstdint>
#include <cstring>

#include <coshard/runtime/dtype.h>

namespace coshard::tools {
namespace {

template <class T>
float number_at(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return static_cast<float>(value);
}

template <class T>
void convert_all(std::span<const std::byte> bytes, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = number_at<T>(bytes.data() + i * sizeof(T));
}

// Eight bits of each value.
void read_block_of_8(const std::byte* block, float* values, std::size_t count) {
  const auto scale = number_at<Float16>(block);
  const std::byte* bytes = block + sizeof(Float16);
  for (std::size_t i = 0; i < count; ++i) values[i] = number_at<std::int8_t>(bytes + i) * scale;
}

// Four bits of each: the first half of the values is in the lower ones. Products of a scale of 11 bits and 4 bits
// are exact, so that it makes no difference whether the sum is fused with them.
void read_block_of_4(const std::byte* block, float* values, std::size_t count, bool has_least) {
  constexpr int kMiddle = 8;
  const auto scale = number_at<Float16>(block);
  const float least = has_least ? number_at<Float16>(block + sizeof(Float16)) : 0;
  const std::byte* bytes = block + (has_least ? 2 : 1) * sizeof(Float16);
  for (std::size_t i = 0; i < count / 2; ++i) {
    const int low = std::to_integer<int>(bytes[i]) & 15, high = std::to_integer<int>(bytes[i]) >> 4;
    const auto value_of = [&](int bits) {
      return has_least ? static_cast<float>(bits) * scale + least
                       : static_cast<float>(bits - kMiddle) * scale;
    };
    values[i] = value_of(low);
    values[i + count / 2] = value_of(high);
  }
}

}  // namespace

void dequantize(GgufType type, std::span<const std::byte> blocks, std::span<float> values) {
  if (type == GgufType::F32) return convert_all<float>(blocks, values);
  if (type == GgufType::F16) return convert_all<Float16>(blocks, values);
  if (type == GgufType::BF16) return convert_all<BFloat16>(blocks, values);
  const GgufBlock block = block_of(type);
  for (std::size_t b = 0; b < values.size() / block.elements; ++b) {
    const std::byte* from = blocks.data() + b * block.bytes;
    float* to = values.data() + b * block.elements;
    if (type == GgufType::Q8_0)
      read_block_of_8(from, to, block.elements);
    else
      read_block_of_4(from, to, block.elements, type == GgufType::Q4_1);
  }
}

}  // namespace coshard::tools
