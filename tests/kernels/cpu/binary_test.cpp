#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {
using namespace testing;

void compare(Binary args, Data out, const std::string& what) {
  Data want = out;
  args.out.data = out.ptr();
  cpu::run(args);
  args.out.data = want.ptr();
  reference::run(args);
  expect_close(out, want, what);
}

TEST(Binary, MatchesTheReferenceOnContiguousData) {
  for (int op = 0; op <= static_cast<int>(BinaryOp::Minimum); ++op) {
    for (DType dtype : kFloating) {
      for (std::int64_t count : kCounts) {
        Data a = Data::normal(dtype, count, 1);
        Data b = Data::normal(dtype, count, 2);
        Data out(dtype, count);
        compare({BinaryOp(op), out.view({count}), a.view({count}), b.view({count}), -1.5}, out,
                "binary " + std::to_string(op));
      }
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

}  // namespace
}  // namespace coshard::kernels
