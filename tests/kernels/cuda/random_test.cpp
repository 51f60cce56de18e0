#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels {
namespace {
using namespace testing;

constexpr RandomKind kDraws[] = {RandomKind::Uniform, RandomKind::Normal};
constexpr std::int64_t kFar = std::int64_t{1} << 33;  // elements: beyond 32 bits

const std::vector<RandomRegion>& regions() {
  static const std::vector<RandomRegion> all = {
      {1, {1030}, {5}, {1}},
      {1, {1}, {3}, {1}},
      {1, {0}, {0}, {1}},
      {2, {7, 30}, {0, kFar}, {30, 1}},
      {2, {5, 9}, {2, 11}, {30, 1}},
      {2, {5, 8}, {1, 4}, {32, 1}},
      {2, {3, 4}, {0, 0}, {1, 3}},
      {3, {3, 4, 5}, {1, 2, 3}, {1000, 10, 1}},
      {0, {}, {}, {}},
  };
  return all;
}

std::int64_t count_of_region(const RandomRegion& region) {
  std::int64_t count = 1;
  for (int d = 0; d < region.ndim; ++d) count *= region.shape[static_cast<std::size_t>(d)];
  return count;
}

TEST(CudaRandom, DrawsTheUniformsOfTheReferenceToTheBit) {
  for (const DType dtype : kFloating) {
    for (const RandomRegion& region : regions()) {
      const std::int64_t count = count_of_region(region);
      const Data got(dtype, count);
      Data want = got;
      OnDevice on;
      Random args{RandomKind::Uniform, dtype, region, 0x123456789abcdefULL, 77, 2, 1, on.put(got)};
      on.run(args);
      args.out = want.ptr();
      reference::run(args);
      EXPECT_EQ(on.get(got), want) << dtype << " " << count;
    }
  }
}

TEST(CudaRandom, ScalesUniformsInF64WithoutFusing) {
  const RandomRegion region{1, {500}, {0}, {1}};
  const Data got(DType::F64, 500);
  Data want = got;
  OnDevice on;
  on.run(Random{RandomKind::Uniform, DType::F64, region, 3, 4, 0.1, -1.0 / 3, on.put(got)});
  reference::run(Random{RandomKind::Uniform, DType::F64, region, 3, 4, 0.1, -1.0 / 3, want.ptr()});
  EXPECT_EQ(on.get(got), want);
}

TEST(CudaRandom, DrawsTheReferencesNormals) {
  for (const DType dtype : kFloating) {
    for (const RandomRegion& region : regions()) {
      const std::int64_t count = count_of_region(region);
      const Data got(dtype, count);
      Data want = got;
      OnDevice on;
      Random args{RandomKind::Normal, dtype, region, 9, 1ULL << 40, 1.5, -0.5, on.put(got)};
      on.run(args);
      args.out = want.ptr();
      reference::run(args);
      const double t = dtype == DType::F64 ? 1e-14 : dtype == DType::F32 ? 2e-7 : 1.0 / 200;
      expect_close(on.get(got), want, t, "normal");
    }
  }
}

TEST(CudaRandom, DrawsInAShardWhatTheWholeDraws) {
  for (const RandomKind kind : kDraws) {
    for (const DType dtype : kFloating) {
      const Data whole(dtype, 210);
      OnDevice on;
      const auto draw = [&](const RandomRegion& region, const Data& out) {
        on.run(Random{kind, dtype, region, 5, 6, 2, 1, on.put(out)});
        return on.get(out);
      };
      const Data all = draw({2, {7, 30}, {0, kFar}, {30, 1}}, whole);
      for (std::int64_t r = 0; r < 7; r += 3) {
        for (std::int64_t c = 0; c < 30; c += 1 + r) {
          const std::int64_t rows = 7 - r, columns = 30 - c;
          const Data memory(dtype, rows * columns);
          const Data part = draw({2, {rows, columns}, {r, kFar + c}, {30, 1}}, memory);
          for (std::int64_t i = 0; i < part.count(); ++i)
            ASSERT_EQ(part.get(i), all.get((r + i / columns) * 30 + c + i % columns));
        }
      }
    }
  }
}

TEST(CudaDropout, KeepsWhatTheReferenceKeeps) {
  for (const DType dtype : kFloating) {
    for (const RandomRegion& region : regions()) {
      for (const double p : {0.0, 0.1, 0.5, 1.0}) {
        const std::int64_t count = count_of_region(region);
        const Data x = Data::normal(dtype, count, 1), got(dtype, count);
        Data want = got;
        OnDevice on;
        on.run(Dropout{dtype, region, 1, 2, p, on.put(x), on.put(got)});
        reference::run(Dropout{dtype, region, 1, 2, p, x.ptr(), want.ptr()});
        const Data y = on.get(got);
        expect_close(y, want, "dropout");
        for (std::int64_t i = 0; i < count; ++i)
          ASSERT_EQ(y.get(i) == 0, want.get(i) == 0) << dtype << " " << p << " element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace coshard::kernels
