// Times of products by shape: interpolated, extrapolated, in waves.
#include "runtime/cost/gemm.h"

#include <gtest/gtest.h>

namespace coshard {
namespace {

// A constant and a share of rows * n * k, in 1/1024 ns.
GemmTable table_of(std::int64_t constant_ns, std::int64_t share_x1024) {
  GemmTable table;
  for (std::size_t i = 0; i < GemmTable::kPoints; ++i) {
    const GemmTable::Point p = table.point(i);
    table.ns[i] = constant_ns + p.rows * p.n * p.k * share_x1024 / 1024;
  }
  return table;
}

TEST(GemmModel, IsExactBetweenPointsWhereATimeIsAConstantAndAShare) {
  const GemmTable table = table_of(5'000, 1024);
  for (const std::int64_t rows : {1, 5, 33, 200, 512})
    for (const std::int64_t n : {128, 300, 2048})
      for (const std::int64_t k : {128, 777, 2048})
        EXPECT_EQ(table.at(rows, n, k), 5'000 + rows * n * k) << rows << ' ' << n << ' ' << k;
}

TEST(GemmModel, TakesItsShareOfTheLastPointBeyondTheGrid) {
  const GemmTable table = table_of(0, 1024);
  EXPECT_EQ(table.at(1024, 128, 128), 1024 * 128 * 128);
  EXPECT_EQ(table.at(1024, 4096, 8192), std::int64_t{1024} * 4096 * 8192);
  EXPECT_EQ(table.at(8, 16, 16), 8 * 128 * 128) << "a smaller one as long as the first";
  EXPECT_EQ(GemmTable().at(8, 128, 128), 1) << "nothing takes no time";
}

TEST(GemmModel, FillsWhatWasNotMeasuredFromSmallerProducts) {
  const GemmTable whole = table_of(0, 1024);
  GemmTable table = whole;
  for (std::size_t i = 0; i < GemmTable::kPoints; ++i) {
    const GemmTable::Point p = table.point(i);
    if (2 * p.rows * p.n * p.k > 1 << 28) table.ns[i] = 0;
  }
  EXPECT_FALSE(table == whole);
  table.complete();
  EXPECT_TRUE(table == whole);
  GemmTable nothing;
  nothing.complete();
  EXPECT_GE(nothing.at(512, 2048, 2048), 1);
}

TEST(GemmModel, LetsNoProductTakeLongerThanAsManySmallerOnes) {
  GemmTable table = table_of(1'000, 1024);
  table.ns[GemmTable::kPoints / 2] *= 1'000;  // the machine did something else
  table.complete();
  for (const std::int64_t rows : {8, 32, 128})
    for (const std::int64_t side : {128, 512, 2048})
      EXPECT_LE(table.at(4 * rows, side, side), 4 * table.at(rows, side, side));
}

TEST(GemmModel, OnAGpuAProductTakesWholeWavesOfTiles) {
  GemmTable table;
  table.scale = 4, table.multiprocessors = 132;
  for (std::size_t i = 0; i < GemmTable::kPoints; ++i) {  // 1 us per wave
    const GemmTable::Point p = table.point(i);
    const std::int64_t tiles = (p.rows + 127) / 128 * ((p.n + 255) / 256);
    table.ns[i] = (tiles + 131) / 132 * 1'000;
  }
  table.complete();
  // A matrix of 8192 rows and 1280 columns has 320 tiles: 3 waves. Its eighths have 40: one wave
  // each, 8 in all (2.67 times as long).
  EXPECT_EQ(table.at(8192, 1280, 8192 / 4), 3'000);
  EXPECT_EQ(8 * table.at(1024, 1280, 8192 / 4), 8'000);
  EXPECT_EQ(table.at(128, 132 * 256, 2048), 1'000);
  EXPECT_EQ(table.at(129, 132 * 256, 2048), 2'000);
}

TEST(GemmModel, OnAGpuFewRowsTakeTheTimeOfReadingTheWeight) {
  GemmTable table;
  table.scale = 4, table.multiprocessors = 132;
  for (std::size_t i = 0; i < GemmTable::kPoints; ++i) {
    const GemmTable::Point p = table.point(i);
    table.ns[i] = std::max<std::int64_t>(p.n * p.k / 1'000, 1);
  }
  table.complete();
  EXPECT_NEAR(static_cast<double>(table.at(64, 16'032, 4'096)), 16'032 * 4.096, 700);
}

TEST(GemmModel, WithoutACalibrationIsAConstantRate) {
  const GemmModel core{nullptr, 1}, cores{nullptr, 4}, gpu{nullptr, 0};
  EXPECT_EQ(core.ns(100, 300, 1'000), 1'000'000);  // 60 flop/ns
  EXPECT_EQ(cores.ns(100, 300, 1'000), 250'000);
  EXPECT_EQ(core.ns(0, 300, 1'000), 0);
  EXPECT_EQ(gpu.ns(128, 256, 4096), gpu.ns(128 * 12, 256 * 11, 4096)) << "one wave of 132 tiles";
  EXPECT_EQ(gpu.ns(128 * 12, 256 * 11 + 1, 4000), 2 * gpu.ns(128, 256, 4000));
}

}  // namespace
}  // namespace coshard
