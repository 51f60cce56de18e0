#include "dtensor/checkpoint/stored_value.h"

#include <gtest/gtest.h>
#include <array>
#include <cstring>
#include <limits>

namespace coshard::testing {
namespace {

// The second of two stored elements.
template <class T>
long double second(StoredType type, T value) {
  std::array<std::byte, 2 * sizeof(T)> bytes{};
  std::memcpy(bytes.data() + sizeof(T), &value, sizeof(T));
  return stored_value(type, bytes.data(), 1);
}

TEST(StoredValue, IsExactForEveryTypeOfNumbers) {
  EXPECT_EQ(second<std::uint8_t>(StoredType::U8, 200), 200);
  EXPECT_EQ(second<std::int8_t>(StoredType::I8, -100), -100);
  EXPECT_EQ(second<std::int16_t>(StoredType::I16, -30000), -30000);
  EXPECT_EQ(second<std::uint16_t>(StoredType::U16, 60000), 60000);
  EXPECT_EQ(second<std::int32_t>(StoredType::I32, -2000000000), -2e9);
  EXPECT_EQ(second<std::uint32_t>(StoredType::U32, 4000000000), 4e9);
  EXPECT_EQ(second<std::int64_t>(StoredType::I64, -(1LL << 53) + 1), -9007199254740991.0);
  EXPECT_EQ(second<std::uint64_t>(StoredType::U64, 1ULL << 63), 9223372036854775808.0);
  EXPECT_EQ(second<std::int64_t>(StoredType::I64, (1LL << 53) + 1), 9007199254740993.0L);
  EXPECT_EQ(second<std::uint64_t>(StoredType::U64, ~0ULL), 18446744073709551615.0L);
  EXPECT_EQ(second(StoredType::F32, 0.1F), static_cast<double>(0.1F));
  EXPECT_EQ(second(StoredType::F64, 0.1), 0.1);
  EXPECT_EQ(second<std::uint16_t>(StoredType::F16, 0x3555), 0.333251953125);
  EXPECT_EQ(second<std::uint16_t>(StoredType::BF16, 0xff80),
            -std::numeric_limits<double>::infinity());
}

TEST(StoredValue, OfABoolIsOneForEveryByteButZero) {
  for (const int byte : {0, 1, 2, 255})
    EXPECT_EQ(second(StoredType::Bool, static_cast<std::uint8_t>(byte)), byte == 0 ? 0 : 1);
}

TEST(StoredValue, IsKnownUnlessBitsArePackedOrRare) {
  for (const StoredType type :
       {StoredType::F4, StoredType::F6_E2M3, StoredType::F8_E4M3, StoredType::C64})
    EXPECT_FALSE(has_values(type));
  for (const StoredType type : {StoredType::Bool, StoredType::BF16, StoredType::U64})
    EXPECT_TRUE(has_values(type));
}

}  // namespace
}  // namespace coshard::testing
