#include <range/v3/view/cartesian_product.hpp>

#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {
using namespace testing;
namespace views = ranges::views;

Random random_args(RandomKind kind, DType dtype, const RandomRegion& region, void* out) {
  return {kind, dtype, region, 0x123456789abcdefULL, 77, 2, 1, out};
}

constexpr RandomKind kKinds[] = {RandomKind::Uniform, RandomKind::Normal};

TEST(Random, MatchesTheReference) {
  for (const auto& [kind, dtype, count] : views::cartesian_product(kKinds, kFloating, kCounts)) {
    const RandomRegion region{1, {count}, {5}, {1}};
    Data got(dtype, count);
    Data want = got;
    cpu::run(random_args(kind, dtype, region, got.ptr()));
    reference::run(random_args(kind, dtype, region, want.ptr()));
    expect_close(got, want, "random");
  }
}

// Every window of a [7, 30] tensor draws what the whole draws there, also beyond 2^32 elements.
TEST(Random, DrawsInAShardWhatTheWholeDraws) {
  constexpr std::int64_t kFar[] = {0, std::int64_t{1} << 33};
  for (const auto& [kind, dtype, far] : views::cartesian_product(kKinds, kFloating, kFar)) {
    Data whole(dtype, 210);
    cpu::run(random_args(kind, dtype, {2, {7, 30}, {0, far}, {30, 1}}, whole.ptr()));
    for (std::int64_t r = 0; r < 7; ++r) {
      for (std::int64_t c = 0; c < 30; c += 1 + r) {
        const std::int64_t rows = 7 - r;
        const std::int64_t columns = 30 - c;
        Data part(dtype, rows * columns);
        cpu::run(random_args(kind, dtype, {2, {rows, columns}, {r, far + c}, {30, 1}}, part.ptr()));
        for (std::int64_t i = 0; i < part.count(); ++i) {
          ASSERT_EQ(part.get(i), whole.get((r + i / columns) * 30 + c + i % columns));
        }
      }
    }
  }
}

TEST(Random, TakesRegionsThatAreTransposedOrOfRankZero) {
  Data got(DType::F64, 12);
  Data whole(DType::F64, 12);
  cpu::run(random_args(RandomKind::Normal, DType::F64, {1, {12}, {0}, {1}}, whole.ptr()));
  cpu::run(random_args(RandomKind::Normal, DType::F64, {2, {3, 4}, {0, 0}, {1, 3}}, got.ptr()));
  for (int i = 0; i < 12; ++i) EXPECT_EQ(got.get(i), whole.get(i % 4 * 3 + i / 4));
  cpu::run(random_args(RandomKind::Normal, DType::F64, {}, got.ptr()));
  EXPECT_EQ(got.get(0), whole.get(0));
}

TEST(Random, HasTheMomentsItPromises) {
  constexpr std::int64_t kDraws = 200000;
  Data x(DType::F32, kDraws);
  for (RandomKind kind : kKinds) {
    cpu::run(Random{kind, DType::F32, {1, {kDraws}, {0}, {1}}, 3, 4, 1, 0, x.ptr()});
    double sum = 0;
    double squares = 0;
    for (std::int64_t i = 0; i < kDraws; ++i) {
      sum += x.get(i);
      squares += x.get(i) * x.get(i);
    }
    const bool uniform = kind == RandomKind::Uniform;
    EXPECT_NEAR(sum / kDraws, uniform ? 0.5 : 0, 0.01);
    EXPECT_NEAR(squares / kDraws, uniform ? 1.0 / 3 : 1, 0.01);
  }
}

TEST(Dropout, MatchesTheReferenceAndKeepsAboutItsShare) {
  for (DType dtype : kFloating) {
    for (double p : {0.0, 0.1, 0.5, 0.7}) {
      const RandomRegion region{2, {40, 50}, {3, 7}, {100, 1}};
      const Data x = Data::filled(dtype, 2000, 1);
      Data got(dtype, 2000);
      Data want = got;
      cpu::run(Dropout{dtype, region, 1, 2, p, x.ptr(), got.ptr()});
      reference::run(Dropout{dtype, region, 1, 2, p, x.ptr(), want.ptr()});
      expect_close(got, want, "dropout");
      int kept = 0;
      for (int i = 0; i < 2000; ++i) kept += got.get(i) != 0 ? 1 : 0;
      EXPECT_NEAR(kept, 2000 * (1 - p), 100);
    }
  }
}

}  // namespace
}  // namespace coshard::kernels
