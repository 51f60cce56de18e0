#include <range/v3/view/cartesian_product.hpp>
#include <range/v3/view/iota.hpp>

#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {
using namespace testing;
namespace views = ranges::views;

void compare(Binary args, Data out, const std::string& what) {
  Data want = out;
  args.out.data = out.ptr();
  cpu::run(args);
  args.out.data = want.ptr();
  reference::run(args);
  expect_close(out, want, what);
}

TEST(Binary, MatchesTheReferenceOnContiguousData) {
  const auto ops = views::closed_iota(0, static_cast<int>(BinaryOp::Heaviside));
  for (const auto& [op, dtype, count] : views::cartesian_product(ops, kFloating, kCounts)) {
    Data a = Data::normal(dtype, count, 1);
    Data b = Data::normal(dtype, count, 2);
    Data out(dtype, count);
    compare({BinaryOp(op), out.view({count}), a.view({count}), b.view({count}), -1.5}, out,
            "binary " + std::to_string(op));
  }
}

TEST(Binary, ComparisonsMatchTheReference) {
  const auto ops = views::closed_iota(int(BinaryOp::Lt), int(BinaryOp::Ne));
  for (const auto& [op, dtype, count] : views::cartesian_product(ops, kFloating, kCounts)) {
    Data a = Data::integers(dtype, 2 * count, 1, -2, 2), b = Data::integers(dtype, count, 2, -2, 2);
    if (count > 0) b.set(count / 2, std::nan(""));
    const Data out = Data::filled(DType::Bool, count, 1);
    View strided = a.view({count});
    strided.strides[0] = 2;
    Data place = out;
    for (const double alpha : {1.0, 0.1}) {
      compare({BinaryOp(op), place.view({count}), strided, b.view({count}), alpha}, out, "pairs");
      compare({BinaryOp(op), place.view({count}), strided, {}, alpha}, out, "a number");
    }
  }
}

TEST(Binary, BroadcastsAndTransposes) {
  for (DType dtype : kFloating) {
    Data a = Data::normal(dtype, 5 * 7 * 33, 1);
    Data b = Data::normal(dtype, 33, 2);
    Data out(dtype, a.count());
    View row = b.view({1, 1, 33});
    row.shape = {5, 7, 33};
    row.strides = {0, 0, 1};
    const View column = {b.ptr(), dtype, 3, {5, 7, 33}, {0, 1, 0}};
    const View turned = a.view({5, 7, 33}, {2, 0, 1});
    for (const View& right : {row, column, turned}) {
      compare({BinaryOp::Add, out.view({5, 7, 33}), a.view({5, 7, 33}), right}, out, "broadcast");
      compare({BinaryOp::Mul, out.view({5, 7, 33}, {1, 2, 0}), turned, right}, out, "transposed");
    }
  }
}

TEST(Binary, AddsInPlaceAndTakesScalarsAndEmptyShapes) {
  Data a = Data::normal(DType::F32, 100, 1);
  Data want = a;
  cpu::run(Binary{BinaryOp::Add, a.view({100}), a.view({100}), a.view({100}), 2});
  for (int i = 0; i < 100; ++i) EXPECT_FLOAT_EQ(a.get(i), 3 * want.get(i));
  cpu::run(Binary{BinaryOp::Add, a.view({}), a.view({}), a.view({}), 1});
  EXPECT_FLOAT_EQ(a.get(0), 6 * want.get(0));
  cpu::run(Binary{BinaryOp::Add, a.view({4, 0}), a.view({4, 0}), a.view({4, 0}), 1});
}

TEST(Binary, KeepsIntegersExact) {
  for (DType dtype : {DType::I64, DType::I32}) {
    Data a = Data::integers(dtype, 20, 1, -9, 9);
    Data b = Data::integers(dtype, 20, 2, 1, 9);
    Data out(dtype, 20);
    cpu::run(Binary{BinaryOp::Sub, out.view({20}), a.view({20}), b.view({20}), 3});
    for (int i = 0; i < 20; ++i) EXPECT_EQ(out.get(i), a.get(i) - 3 * b.get(i));
    Data zero(dtype, 20);
    EXPECT_ANY_THROW(
        cpu::run(Binary{BinaryOp::Div, out.view({20}), a.view({20}), zero.view({20}), 1}));
  }
}

TEST(Binary, TakesANumberForTheRightOperandInTheTensorsPrecision) {
  const auto ops = views::closed_iota(0, static_cast<int>(BinaryOp::Ne));
  for (const auto& [op, dtype] : views::cartesian_product(ops, kFloating)) {
    Data a = Data::normal(dtype, 257, 1);
    a.set(3, 0.3);
    const bool compares = is_comparison(BinaryOp(op));
    const bool narrow = size_of(dtype) == 2;
    Data b = Data::filled(narrow && !compares ? DType::F32 : dtype, 257, 0.3);
    Data out(compares ? DType::Bool : dtype, 257);
    cpu::run(Binary{BinaryOp(op), out.view({257}), a.view({257}), {}, 0.3});
    if (b.dtype() != dtype) continue;
    Data want = out;
    reference::run(Binary{BinaryOp(op), want.view({257}), a.view({257}), b.view({257})});
    expect_close(out, want, "with a number, binary " + std::to_string(op));
    if (BinaryOp(op) == BinaryOp::Eq) {
      EXPECT_EQ(out.get(3), 1);
    }
  }
}

TEST(Binary, ComparesToBoolAndOrdersNothingWithNaN) {
  for (DType dtype : {DType::F32, DType::F64, DType::BF16, DType::I64, DType::I32, DType::Bool}) {
    Data a(dtype, 3);
    Data b(dtype, 3);
    for (int i = 0; i < 3; ++i) a.set(i, i > 0), b.set(i, i > 1);  // 0 1 1 and 0 0 1
    const double want[6][3] = {{0, 0, 0}, {1, 0, 1}, {0, 1, 0}, {1, 1, 1}, {1, 0, 1}, {0, 1, 0}};
    for (int k = 0; k < 6; ++k) {
      Data out(DType::Bool, 3);
      const auto op = static_cast<BinaryOp>(static_cast<int>(BinaryOp::Lt) + k);
      cpu::run(Binary{op, out.view({3}), a.view({3}), b.view({3})});
      for (int i = 0; i < 3; ++i) EXPECT_EQ(out.get(i), want[k][i]) << dtype << " " << k;
      if (!is_floating(dtype)) continue;
      a.set(0, std::nan(""));
      cpu::run(Binary{op, out.view({3}), a.view({3}), b.view({3})});
      EXPECT_EQ(out.get(0), op == BinaryOp::Ne);
      a.set(0, 0);
    }
  }
}

TEST(Binary, GivesRemaindersTheSignOfTheDivisorAndIntegerPowersExactly) {
  const int tops[] = {7, -7, 7, -7, 6};
  const int bottoms[] = {3, 3, -3, -3, 3};
  const int rests[] = {1, 2, -2, -1, 0};
  for (DType dtype : {DType::I64, DType::I32, DType::F32, DType::F64, DType::BF16}) {
    Data a(dtype, 5);
    Data b(dtype, 5);
    Data out(dtype, 5);
    for (int i = 0; i < 5; ++i) a.set(i, tops[i]), b.set(i, bottoms[i]);
    cpu::run(Binary{BinaryOp::Remainder, out.view({5}), a.view({5}), b.view({5})});
    for (int i = 0; i < 5; ++i) EXPECT_EQ(out.get(i), rests[i]) << dtype << " " << i;
  }
  Data a = Data::filled(DType::I64, 3, 3);
  Data b(DType::I64, 3);
  Data out(DType::I64, 3);
  for (int i = 0; i < 3; ++i) b.set(i, i == 2 ? -1 : 19 * i);
  cpu::run(Binary{BinaryOp::Pow, out.view({3}), a.view({3}), b.view({3})});
  const double powers[] = {1, 1162261467, 0};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(out.get(i), powers[i]);
  b.set(0, 0);
  EXPECT_ANY_THROW(cpu::run(Binary{BinaryOp::Remainder, out.view({3}), a.view({3}), b.view({3})}));
}

TEST(Binary, KeepsBoolWithinItsTwoValues) {
  Data a(DType::Bool, 4);
  Data b(DType::Bool, 4);
  Data out(DType::Bool, 4);
  for (int i = 0; i < 4; ++i) a.set(i, i / 2), b.set(i, i % 2);
  cpu::run(Binary{BinaryOp::Add, out.view({4}), a.view({4}), b.view({4})});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(out.get(i), i > 0);
  cpu::run(Binary{BinaryOp::Minimum, out.view({4}), a.view({4}), b.view({4})});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(out.get(i), i == 3);
}

TEST(Where, ChoosesBetweenBroadcastTensorsAndNumbersOfAnyDtype) {
  for (DType dtype : {DType::F32, DType::F64, DType::BF16, DType::I64, DType::I32, DType::Bool}) {
    Data condition(DType::Bool, 2);
    condition.set(1, 1);
    Data x(dtype, 6);
    Data y(dtype, 3);
    for (int i = 0; i < 6; ++i) x.set(i, i % 2);
    for (int i = 0; i < 3; ++i) y.set(i, i == 1);
    Data out(dtype, 6);
    const View rows{condition.ptr(), DType::Bool, 2, {2, 3}, {1, 0}};
    const View columns{y.ptr(), dtype, 2, {2, 3}, {0, 1}};
    cpu::run(Where{out.view({2, 3}), rows, x.view({2, 3}), columns});
    for (int i = 0; i < 6; ++i) EXPECT_EQ(out.get(i), i < 3 ? y.get(i) : x.get(i)) << dtype;
    cpu::run(Where{out.view({2, 3}), rows, {}, columns, 1});
    for (int i = 0; i < 6; ++i) EXPECT_EQ(out.get(i), i < 3 ? y.get(i) : 1) << dtype;
    cpu::run(Where{out.view({2, 3}), rows, x.view({2, 3}), {}, 1});
    for (int i = 0; i < 6; ++i) EXPECT_EQ(out.get(i), i < 3 ? 1 : x.get(i)) << dtype;
  }
  Data none(DType::F32, 0);
  cpu::run(Where{none.view({0, 3}), none.view({0, 3}), none.view({0, 3}), {}, 1});
}

}  // namespace
}  // namespace coshard::kernels
