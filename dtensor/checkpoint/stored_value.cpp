#include "dtensor/checkpoint/stored_value.h"

#include <cstring>
#include <type_traits>

namespace coshard {
namespace {

using Element = long double (*)(const std::byte*);

template <class T>
long double read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<long double>(value);
  else
    return static_cast<long double>(static_cast<float>(value));
}

// Null: not known.
Element element_of(StoredType type) {
  switch (type) {
    case StoredType::Bool:
      return [](const std::byte* from) { return *from == std::byte{0} ? 0.0L : 1.0L; };
    case StoredType::U8: return read<std::uint8_t>;
    case StoredType::I8: return read<std::int8_t>;
    case StoredType::I16: return read<std::int16_t>;
    case StoredType::U16: return read<std::uint16_t>;
    case StoredType::F16: return read<Float16>;
    case StoredType::BF16: return read<BFloat16>;
    case StoredType::I32: return read<std::int32_t>;
    case StoredType::U32: return read<std::uint32_t>;
    case StoredType::F32: return read<float>;
    case StoredType::F64: return read<double>;
    case StoredType::I64: return read<std::int64_t>;
    case StoredType::U64: return read<std::uint64_t>;
    default: return nullptr;
  }
}

}  // namespace

bool has_values(StoredType type) { return element_of(type) != nullptr; }

long double stored_value(StoredType type, const std::byte* data, std::int64_t at) {
  return element_of(type)(data + at * (bits_of(type) / 8));
}

}  // namespace coshard
