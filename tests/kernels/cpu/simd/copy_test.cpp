#include <bit>
#include <numeric>
#include <range/v3/view/cartesian_product.hpp>

#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/cpu/simd/sets.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {
using namespace testing;

const std::vector<DType> kAll = {DType::F32, DType::F64, DType::BF16, DType::F16,
                                 DType::I64, DType::I32, DType::Bool};

std::vector<std::vector<int>> orders(int ndim) {
  std::vector<int> order(ndim);
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::vector<int>> all;
  do {
    all.push_back(order);
  } while (std::next_permutation(order.begin(), order.end()));
  return all;
}

TEST(Copy, PermutesEveryWay) {
  const std::vector<std::int64_t> shape = {3, 5, 17, 33};
  const std::int64_t count = 3 * 5 * 17 * 33;
  for (DType dtype : {DType::F32, DType::BF16, DType::I64, DType::Bool}) {
    Data from = Data::integers(dtype, count, 1, 0, 100);
    for (const auto& order : orders(4)) {
      Data got(dtype, count);
      Data want(dtype, count);
      cpu::run(Copy{got.view(shape), from.view(shape, order)});
      reference::run(Copy{want.view(shape), from.view(shape, order)});
      ASSERT_EQ(got, want);
      cpu::run(Copy{got.view(shape, order), from.view(shape)});
      reference::run(Copy{want.view(shape, order), from.view(shape)});
      ASSERT_EQ(got, want);
    }
  }
}

TEST(Copy, ConvertsBetweenAllDtypes) {
  for (const auto& [from, to, count] : ranges::views::cartesian_product(kAll, kAll, kCounts)) {
    Data x = Data::integers(from, count, 1, -3, 3);
    Data y(to, count);
    cpu::run(Copy{y.view({count}), x.view({count})});
    for (std::int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(y.get(i), to == DType::Bool ? double(x.get(i) != 0) : x.get(i)) << from << to;
    }
  }
}

TEST(Copy, ConvertsBetweenFloatingDtypesToTheBitsOfTheReference) {
  for (const auto& [from, to] : ranges::views::cartesian_product(kFloating, kFloating)) {
    Data x = Data::normal(from, 1001, 4, 300);
    const double edges[] = {INFINITY, -INFINITY, 65519, 65520, 1e-8, 6e-8, -0.0, 3e38, 1e300};
    for (int i = 0; i < 9; ++i) x.set(i, edges[i]);
    for (const int stride : {1, 7}) {
      Data got(to, 1001), want(to, 1001);
      const View source{x.ptr(), from, 1, {143}, {stride}};
      cpu::run(Copy{got.view({143}), source});
      reference::run(Copy{want.view({143}), source});
      ASSERT_EQ(got, want) << from << to;
    }
  }
}

TEST(Copy, RoundsToNearestEvenInBf16AsTheValueTypeDoes) {
  Data x = Data::normal(DType::F32, 1000, 4, 1e3);
  x.set(0, std::nan(""));
  x.set(1, 3.4e38);
  Data got(DType::BF16, 1000);
  Data want(DType::BF16, 1000);
  cpu::run(Copy{got.view({1000}), x.view({1000})});
  reference::run(Copy{want.view({1000}), x.view({1000})});
  EXPECT_EQ(got, want);
}

// Every f16, and the floats at which the rounding to f16 changes, with their neighbours.
TEST(Copy, ConvertsF16ToAndFromTheBitsOfTheValueTypeInEverySet) {
  std::vector<Float16> halves(1 << 16);
  std::vector<float> values;
  for (std::size_t i = 0; i < halves.size(); ++i) {
    halves[i].bits = static_cast<std::uint16_t>(i);
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(halves[i]));
    for (const std::uint32_t step : {0U, 1U, 0xfffU, 0x1000U, 0x1001U})
      values.push_back(std::bit_cast<float>(bits + step));
  }
  for (std::uint32_t size = 0x33000000; size < 0x38800000; size += 0x1001) {  // to subnormals
    values.push_back(std::bit_cast<float>(size));
    values.push_back(-std::bit_cast<float>(size));
  }
  const auto wide = static_cast<std::int64_t>(halves.size());
  const auto narrow = static_cast<std::int64_t>(values.size());
  for (const SimdSet& set : kSets) {
    std::vector<float> widened(wide);
    set.narrow.run(Copy{{widened.data(), DType::F32, 1, {wide}, {1}},
                        {halves.data(), DType::F16, 1, {wide}, {1}}});
    for (std::int64_t i = 0; i < wide; ++i) {
      const float want = halves[i];
      if (want == want) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(widened[i]), std::bit_cast<std::uint32_t>(want));
      } else {
        ASSERT_NE(widened[i], widened[i]);
      }
    }
    std::vector<Float16> narrowed(narrow);
    set.narrow.run(Copy{{narrowed.data(), DType::F16, 1, {narrow}, {1}},
                        {values.data(), DType::F32, 1, {narrow}, {1}}});
    for (std::int64_t i = 0; i < narrow; ++i)
      ASSERT_EQ(narrowed[i].bits, Float16(values[i]).bits) << set.name << " " << values[i];
  }
}

TEST(Copy, ExpandsAndSlicesAndTakesEmptyViews) {
  Data from = Data::normal(DType::F32, 40, 1);
  Data to(DType::F32, 40);
  View row = {from.ptr(), DType::F32, 2, {4, 10}, {0, 1}};
  cpu::run(Copy{to.view({4, 10}), row});
  for (int i = 0; i < 40; ++i) ASSERT_EQ(to.get(i), from.get(i % 10));
  const View slice = {static_cast<float*>(from.ptr()) + 1, DType::F32, 2, {4, 5}, {10, 2}};
  View window = to.view({4, 10});
  window.shape[1] = 5;
  cpu::run(Copy{window, slice});
  for (int i = 0; i < 20; ++i)
    ASSERT_EQ(to.get(i / 5 * 10 + i % 5), from.get(i / 5 * 10 + 1 + i % 5 * 2));
  cpu::run(Copy{to.view({0, 5}), from.view({0, 5})});
}

TEST(Fill, SetsEveryElementOfEveryDtype) {
  for (DType dtype : kAll) {
    for (double value : {0.0, 1.0, 3.0}) {
      Data data = Data::filled(dtype, 37, 1);
      cpu::run(Fill{data.ptr(), dtype, 36, value});
      for (int i = 0; i < 36; ++i) {
        EXPECT_EQ(data.get(i), dtype == DType::Bool ? double(value != 0) : value);
      }
      EXPECT_EQ(data.get(36), 1);
    }
  }
}

}  // namespace
}  // namespace coshard::kernels
