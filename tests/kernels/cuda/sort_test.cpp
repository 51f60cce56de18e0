#include "tests/kernels/cuda/compared.h"

namespace coshard::kernels {
namespace {
using namespace testing;

Data sort_data(DType dtype, std::int64_t count) {
  // few different values: many are equal
  if (!is_floating(dtype)) return Data::integers(dtype, count, 1, dtype == DType::Bool ? 0 : -9, 9);
  Data data = Data::integers(dtype, count, 1, -20, 20);
  spoil(data, 7);
  return data;
}

void expect_sorted(DType dtype, const LinesShape& s, std::int64_t k, bool descending) {
  const Data x = sort_data(dtype, s.count());
  const Data values(dtype, s.lines() * k), places(DType::I64, s.lines() * k);
  const auto make = [&](auto at) {
    return Sort{descending, dtype, s.outer, s.extent, s.inner, k, at(x), at(values), at(places)};
  };
  expect_as_reference("sort" + s.text(), {&values, &places}, make);
  expect_as_reference("places of a sort" + s.text(), {&places}, make, 0);
}

TEST(CudaSort, OrdersEveryDTypeStablyWithNaNAsTheGreatest) {
  for (const DType dtype : kLineDTypes) {
    for (const bool descending : {false, true}) {
      for (const LinesShape& s :
           {LinesShape{2, 1, 1}, {2, 2, 1}, {3, 33, 1}, {2, 40, 5}, {1, 257, 1}, {0, 3, 1}})
        expect_sorted(dtype, s, s.extent, descending);
    }
  }
}

TEST(CudaSort, MergesRunsOfLongLines) {
  for (const LinesShape& s : {LinesShape{1, 2049, 1}, {2, 5000, 1}, {1, 4500, 3}, {1, 9000, 1}}) {
    expect_sorted(DType::F32, s, s.extent, false);
    expect_sorted(DType::I32, s, 17, true);
  }
}

TEST(CudaSort, GivesTheFirstFew) {
  for (const std::int64_t k : {0, 1, 5}) {
    expect_sorted(DType::F32, {3, 31, 1}, k, true);
    expect_sorted(DType::BF16, {3, 31, 5}, k, false);
  }
}

}  // namespace
}  // namespace coshard::kernels
