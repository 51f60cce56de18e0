// Scans and sorting along lines: order, places, NaN, equals, and the gradients of scans.
#include <limits>

#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {
using namespace testing;

using Row = std::vector<double>;
const double kScanInf = std::numeric_limits<double>::infinity();
const double kScanNan = std::numeric_limits<double>::quiet_NaN();

Data scan_data(const Row& values, DType dtype = DType::F64) {
  Data data(dtype, static_cast<std::int64_t>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) data.set(static_cast<std::int64_t>(i), values[i]);
  return data;
}
Row row_of(const Data& data) {
  Row row;
  for (std::int64_t i = 0; i < data.count(); ++i) row.push_back(data.get(i));
  return row;
}

struct Both {
  Row values, indices;
};

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

Both sorted(const Row& values, bool descending, std::int64_t k) {
  const Data x = scan_data(values);
  Data y(DType::F64, k);
  Data where(DType::I64, k);
  reference::run(Sort{descending, DType::F64, 1, x.count(), 1, k, x.ptr(), y.ptr(), where.ptr()});
  return {row_of(y), row_of(where)};
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

TEST(Sort, OrdersStablyWithNaNAsTheGreatest) {
  const Both up = sorted({2, kScanNan, 1, 2}, false, 4);
  EXPECT_EQ(up.indices, (Row{2, 0, 3, 1}));
  const Both down = sorted({2, kScanNan, 1, 2}, true, 4);
  EXPECT_EQ(down.indices, (Row{1, 0, 3, 2}));
  EXPECT_TRUE(std::isnan(down.values[0]));
}

TEST(Sort, GivesTheFirstFewAlongTheMiddle) {
  const Data x = scan_data({3, 9, 1, 8, 2, 7}, DType::I32);  // [1, 3, 2]
  Data y(DType::I32, 4);
  Data where(DType::I64, 4);
  reference::run(Sort{false, DType::I32, 1, 3, 2, 2, x.ptr(), y.ptr(), where.ptr()});
  EXPECT_EQ(row_of(y), (Row{1, 7, 2, 8}));
  EXPECT_EQ(row_of(where), (Row{1, 2, 2, 1}));
  EXPECT_ANY_THROW(sorted({1, 2}, false, 3));
}

TEST(ArgReduce, FindsTheFirstExtremeAndTheFirstNaN) {
  const auto place = [](bool largest, const Row& values) {
    const Data x = scan_data(values);
    Data where(DType::I64, 1);
    reference::run(ArgReduce{largest, DType::F64, 1, x.count(), 1, x.ptr(), nullptr, where.ptr()});
    return where.get(0);
  };
  EXPECT_EQ(place(true, {1, 5, 5}), 1);
  EXPECT_EQ(place(false, {4, 2, 2, 3}), 1);
  EXPECT_EQ(place(true, {1, kScanNan, 7, kScanNan}), 1);
  EXPECT_EQ(place(false, {1, kScanNan, 0}), 1);
  EXPECT_EQ(place(true, {-kScanInf, -kScanInf}), 0);
  EXPECT_ANY_THROW(place(true, {}));
}

TEST(NllLoss, WeighsIgnoresAndSmooths) {
  const Data log_probs = scan_data({-1, -2, -3, -4, -5, -6});  // [2, 3]
  const Data target = scan_data({2, 0}, DType::I64);
  const Data weight = scan_data({1, 2, 4});
  Data loss(DType::F64, 2);
  Data count(DType::F64, 2);
  reference::run(NllLoss{DType::F64, 2, 3, 1, 0, 0, log_probs.ptr(), target.ptr(), weight.ptr(),
                         loss.ptr(), count.ptr()});
  EXPECT_EQ(row_of(loss), (Row{12, 0}));
  EXPECT_EQ(row_of(count), (Row{4, 0}));
  reference::run(NllLoss{DType::F64, 2, 3, 1, -100, 0.5, log_probs.ptr(), target.ptr(),
                         weight.ptr(), loss.ptr(), count.ptr()});
  EXPECT_NEAR(loss.get(0), 0.5 * 12 + 0.5 / 3 * (1 + 4 + 12), 1e-12);
  const Data wrong = scan_data({3, 0}, DType::I64);
  EXPECT_ANY_THROW(reference::run(NllLoss{DType::F64, 2, 3, 1, -100, 0, log_probs.ptr(),
                                          wrong.ptr(), nullptr, loss.ptr(), count.ptr()}));
}

}  // namespace
}  // namespace coshard::kernels
