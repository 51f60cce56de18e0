// Sorting, and where extremes are.
#include "kernels/reference/reference.h"
#include "tests/kernels/reference/rows.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {

using namespace testing;

Both sorted(const Row& values, bool descending, std::int64_t k) {
  const Data x = scan_data(values);
  Data y(DType::F64, k);
  Data where(DType::I64, k);
  reference::run(Sort{descending, DType::F64, 1, x.count(), 1, k, x.ptr(), y.ptr(), where.ptr()});
  return {row_of(y), row_of(where)};
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

}  // namespace
}  // namespace coshard::kernels
