// Bytes out of tensors and into them: casts, strides, truth values.
#include "dtensor/checkpoint/local_parts.h"

#include <gtest/gtest.h>

#include <cstring>

#include <coshard/dtensor/ops/ops.h>
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

std::span<const std::byte> bytes_in_parts(const auto& values) {
  return std::as_bytes(std::span(values));
}

TEST(LocalParts, AreReadRowMajorInTheFilesType) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor turned = t(counting(world, {2, 3}, DType::F64));
    PartsToSave parts({turned, counting(world, {2}, DType::F32)}, {DType::F32, DType::F32});
    float got[6];
    parts.read(0, 0, std::as_writable_bytes(std::span(got)));
    const float want[] = {1, 4, 2, 5, 3, 6};
    EXPECT_EQ(std::memcmp(got, want, sizeof want), 0);
    parts.read(1, 4, std::as_writable_bytes(std::span(got, 1)));
    EXPECT_EQ(got[0], 2);
    co_return;
  });
}

TEST(LocalParts, AreWrittenInPlaceOrAside) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor direct = counting(world, {3}, DType::F32, 0),
                 cast = counting(world, {3}, DType::F64, 0),
                 turned = t(counting(world, {3, 1}, DType::F32, 0)), none = counting(world, {0}),
                 truths = eq(counting(world, {3}), 9);
    PartsToLoad parts({direct, cast, turned, none, truths},
                      {DType::F32, DType::F32, DType::F32, DType::F32, DType::Bool});
    const float values[] = {1, 2, 3};
    const std::uint8_t any[] = {0, 2, 255};
    for (std::size_t i = 0; i < 3; ++i) {
      parts.write(i, 0, bytes_in_parts(values).first(4));
      parts.write(i, 4, bytes_in_parts(values).subspan(4));
    }
    parts.write(4, 0, bytes_in_parts(any));
    EXPECT_EQ(cast.to_vector(), std::vector<double>(3, 0));
    for (std::size_t i = 0; i < 5; ++i) parts.put(i);
    for (const Tensor& x : {direct, cast, turned})
      EXPECT_EQ(x.to_vector(), (std::vector<double>{1, 2, 3}));
    std::uint8_t bits[3];
    truths.device()->download(bits, truths.address(), sizeof bits);
    EXPECT_EQ((std::vector<int>{bits[0], bits[1], bits[2]}), (std::vector<int>{0, 1, 1}));
    const Tensor repeated = expand(direct, {2, 3});
    EXPECT_THROW(PartsToLoad({repeated}, {DType::F32}), Error);
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing
