// Ranges of a file's bytes as ranges of a part's, against an explicit list of positions.
#include "dtensor/checkpoint/byte_region.h"

#include <gtest/gtest.h>

#include <random>

namespace coshard::testing {
namespace {

// Whether each byte of the tensor is held, by counting through all positions.
std::vector<bool> held_bytes(const Region& region, const Shape& shape, std::int64_t element_bytes) {
  std::vector<bool> held;
  const std::int64_t elements = numel(shape);
  for (std::int64_t i = 0; i < elements; ++i) {
    bool in = true;
    std::int64_t rest = i;
    for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d]) {
      bool here = false;
      for (const Range& range : region[d])
        here = here || (range.begin <= rest % shape[d] && rest % shape[d] < range.end);
      in = in && here;
    }
    held.insert(held.end(), static_cast<std::size_t>(element_bytes), in);
  }
  return held;
}

TEST(ByteRegion, AgreesWithAListOfAllBytes) {
  std::mt19937 random(7);
  const auto draw = [&](int from, int to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random);
  };
  for (int round = 0; round < 300; ++round) {
    Shape shape;
    Region region;
    for (std::int64_t d = draw(0, 4); d > 0; --d) {
      const std::int64_t size = draw(0, 5);
      shape.push_back(size);
      Ranges held;
      for (std::int64_t at = draw(0, 2); at < size;) {
        const std::int64_t end = draw(0, 2) == 0 ? size : std::min(size, at + draw(1, 3));
        held.push_back({at, end});
        at = end + draw(1, 3);
      }
      region.push_back(held);
    }
    const std::int64_t element_bytes = draw(1, 8);
    const std::vector<bool> want = held_bytes(region, shape, element_bytes);
    const ByteRegion got(region, shape, element_bytes);
    const auto total = static_cast<std::int64_t>(want.size());
    ASSERT_EQ(got.size(), std::count(want.begin(), want.end(), true));
    std::int64_t before = 0;
    for (std::int64_t at = 0; at <= total; ++at) {
      ASSERT_EQ(got.before(at), before) << at << " of " << shape << " x " << element_bytes;
      before += at < total && want[static_cast<std::size_t>(at)];
    }
    const std::int64_t begin = draw(0, static_cast<int>(total)),
                       end = draw(static_cast<int>(begin), static_cast<int>(total));
    std::vector<bool> seen(want.size());
    std::int64_t last = begin;
    got.each_run(begin, end, [&](std::int64_t at, std::int64_t size) {
      ASSERT_GE(at, last);
      ASSERT_GT(size, 0);
      last = at + size;
      for (std::int64_t i = at; i < at + size; ++i) seen[static_cast<std::size_t>(i)] = true;
    });
    ASSERT_LE(last, end);
    for (std::int64_t i = 0; i < total; ++i) {
      const auto at = static_cast<std::size_t>(i);
      ASSERT_EQ(seen[at], want[at] && begin <= i && i < end) << i << " of " << shape;
    }
  }
}

}  // namespace
}  // namespace coshard::testing
