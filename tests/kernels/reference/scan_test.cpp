// Scans and their gradients.
#include "kernels/reference/reference.h"
#include "tests/kernels/reference/rows.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {

using namespace testing;

Both scanned(ScanOp op, const Row& values, bool reverse = false, DType dtype = DType::F64) {
  const Data x = scan_data(values, dtype);
  Data y(dtype, x.count());
  Data where(DType::I64, x.count());
  reference::run(Scan{op, reverse, dtype, 1, x.count(), 1, x.ptr(), y.ptr(), where.ptr()});
  return {row_of(y), row_of(where)};
}

Row scan_slopes(ScanOp op, const Row& values, const Row& seeds) {
  const Data x = scan_data(values);
  const Data dy = scan_data(seeds);
  Data y(DType::F64, x.count());
  Data dx(DType::F64, x.count());
  reference::run(Scan{op, false, DType::F64, 1, x.count(), 1, x.ptr(), y.ptr(), nullptr});
  reference::run(ScanGrad{op, DType::F64, 1, x.count(), 1, dy.ptr(), x.ptr(), y.ptr(), dx.ptr()});
  return row_of(dx);
}

TEST(Scan, RunsForwardAndFromTheEnd) {
  EXPECT_EQ(scanned(ScanOp::Sum, {1, 2, 3}).values, (Row{1, 3, 6}));
  EXPECT_EQ(scanned(ScanOp::Sum, {1, 2, 3}, true).values, (Row{6, 5, 3}));
  EXPECT_EQ(scanned(ScanOp::Product, {2, 3, -1}, false, DType::I64).values, (Row{2, 6, -6}));
  const Row logs = scanned(ScanOp::LogSumExp, {-kScanInf, 800, 800}).values;
  EXPECT_EQ(logs[0], -kScanInf);
  EXPECT_EQ(logs[1], 800);
  EXPECT_NEAR(logs[2], 800 + std::log(2), 1e-12);
}

TEST(Scan, KeepsTheExtremeSoFarAndTheLastOfEquals) {
  const Both high = scanned(ScanOp::Max, {1, 3, 3, 2});
  EXPECT_EQ(high.values, (Row{1, 3, 3, 3}));
  EXPECT_EQ(high.indices, (Row{0, 1, 2, 2}));
  const Both low = scanned(ScanOp::Min, {2, 3, 1, 5});
  EXPECT_EQ(low.values, (Row{2, 2, 1, 1}));
  EXPECT_EQ(low.indices, (Row{0, 0, 2, 2}));
  const Both nan = scanned(ScanOp::Max, {1, kScanNan, 3});
  EXPECT_TRUE(std::isnan(nan.values[2]));
  EXPECT_EQ(nan.indices, (Row{0, 1, 1}));
}

TEST(ScanGrad, OfProductsIsRightWithZeros) {
  // y = (a, ab, abc)
  EXPECT_EQ(scan_slopes(ScanOp::Product, {2, 3, 5}, {1, 1, 1}), (Row{1 + 3 + 15, 2 + 10, 6}));
  EXPECT_EQ(scan_slopes(ScanOp::Product, {2, 0, 5}, {1, 1, 1}), (Row{1, 2 + 10, 0}));
  EXPECT_EQ(scan_slopes(ScanOp::Product, {0, 0, 5}, {1, 1, 1}), (Row{1, 0, 0}));
}

TEST(ScanGrad, OfLogarithmsStaysFiniteForLargeAndAbsentTerms) {
  const Row slopes = scan_slopes(ScanOp::LogSumExp, {-kScanInf, 900, 900}, {1, 1, 1});
  EXPECT_EQ(slopes[0], 0);
  EXPECT_NEAR(slopes[1], 1.5, 1e-12);
  EXPECT_NEAR(slopes[2], 0.5, 1e-12);
}

}  // namespace
}  // namespace coshard::kernels
