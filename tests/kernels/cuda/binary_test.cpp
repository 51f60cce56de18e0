#include <limits>

#include <coshard/runtime/error.h>
#include "tests/kernels/cuda/on_device.h"
#include "tests/kernels/cuda/operands.h"

namespace coshard::kernels {
namespace {

using namespace testing;

constexpr int kBinaryOps = static_cast<int>(BinaryOp::Ne) + 1;

bool takes(BinaryOp op, DType dtype) {
  return is_floating(dtype) || (op != BinaryOp::Atan2 && op != BinaryOp::Step);
}

// Views of `out`, `a` and `b`; without b the right operand is alpha.
struct Case {
  Data &out, &a, *b;
  View out_view, a_view, b_view;
};

void compare(BinaryOp op, const Case& of, double alpha) {
  OnDevice on;
  Binary args{op, on.put(of.out_view, of.out), on.put(of.a_view, of.a),
              of.b != nullptr ? on.put(of.b_view, *of.b) : View{}, alpha};
  on.run(args);
  const Data got = on.get(of.out);
  args = {op, of.out_view, of.a_view, of.b != nullptr ? of.b_view : View{}, alpha};
  reference::run(args);
  expect_close(got, of.out, "binary " + std::to_string(int(op)));
}

TEST(CudaBinary, MatchesTheReferenceOnContiguousDataOfEveryDType) {
  for (int op = 0; op < kBinaryOps; ++op) {
    for (const DType dtype : kEveryDType) {
      if (!takes(BinaryOp(op), dtype)) continue;
      for (const std::int64_t count : {0, 1, 17, 1030}) {
        Data a = operand(dtype, count, 1, false);
        Data b = operand(dtype, count, 2, divides(BinaryOp(op)));
        Data out(is_comparison(BinaryOp(op)) ? DType::Bool : dtype, count);
        const View none;
        const double alpha = dtype == DType::Bool ? 1 : is_floating(dtype) ? 1.5 : 3;
        compare(BinaryOp(op), {out, a, &b, out.view({count}), a.view({count}), b.view({count})},
                is_comparison(BinaryOp(op)) ? 1 : alpha);
        compare(BinaryOp(op), {out, a, nullptr, out.view({count}), a.view({count}), none}, alpha);
      }
    }
  }
}

TEST(CudaBinary, BroadcastsAndTransposes) {
  for (const DType dtype : kEveryDType) {
    for (const std::int64_t inner : {33, 64}) {
      Data a = operand(dtype, 5 * 7 * inner, 1, false);
      Data b = operand(dtype, inner, 2, false);
      Data out(dtype, a.count());
      const std::vector<std::int64_t> shape = {5, 7, inner};
      const View row = {b.ptr(), dtype, 3, {5, 7, inner}, {0, 0, 1}};
      const View column = {b.ptr(), dtype, 3, {5, 7, inner}, {0, 1, 0}};
      const View one = {b.ptr(), dtype, 3, {5, 7, inner}, {0, 0, 0}};
      for (const View& right : {row, column, one}) {
        compare(BinaryOp::Add, {out, a, &b, out.view(shape), a.view(shape), right}, 1);
        compare(BinaryOp::Mul,
                {out, a, &b, out.view(shape, {1, 2, 0}), a.view(shape, {2, 0, 1}), right}, 1);
        compare(BinaryOp::Sub, {out, a, &b, out.view(shape, {1, 0, 2}), a.view(shape), right}, 1);
      }
    }
  }
}

TEST(CudaBinary, WritesIntoAnOperandAndIntoViewsThatStartAnywhere) {
  for (std::int64_t skip = 0; skip < 6; ++skip) {
    Data a = Data::normal(DType::F32, 100, 1), b = Data::normal(DType::F32, 100, 2);
    View left = a.view({80}), right = b.view({80});
    left.data = static_cast<float*>(left.data) + skip;
    right.data = static_cast<float*>(right.data) + 3;
    OnDevice on;
    View on_left = left, on_right = right;
    on_left.data = static_cast<float*>(on.put(a)) + skip;
    on_right.data = static_cast<float*>(on.put(b)) + 3;
    on.run(Binary{BinaryOp::Add, on_left, on_left, on_right, 2});
    const Data got = on.get(a);
    reference::run(Binary{BinaryOp::Add, left, left, right, 2});
    expect_close(got, a, "in place");
  }
}

TEST(CudaBinary, CarriesNaNOnAndOrdersNothingWithIt) {
  const double inf = std::numeric_limits<double>::infinity();
  const double values[] = {std::nan(""), inf, -inf, 0.0, -0.0, 1};
  for (int op = 0; op < kBinaryOps; ++op) {
    for (const DType dtype : kFloating) {
      Data a(dtype, 36), b(dtype, 36);
      for (int i = 0; i < 36; ++i) a.set(i, values[i / 6]), b.set(i, values[i % 6]);
      Data out(is_comparison(BinaryOp(op)) ? DType::Bool : dtype, 36);
      compare(BinaryOp(op), {out, a, &b, out.view({36}), a.view({36}), b.view({36})}, 1);
    }
  }
}

TEST(CudaBinary, TakesANumberComparedAsAnElement) {
  Data a = Data::filled(DType::BF16, 3, 0.3);
  const Data out(DType::Bool, 3);
  OnDevice on;
  on.run(Binary{BinaryOp::Eq, on.put(Data(out).view({3}), out), on.put(a.view({3}), a), {}, 0.3});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(on.get(out).get(i), 1);
}

TEST(CudaBinary, LeavesAnIntegerDivisionByZeroForTheHost) {
  for (const DType dtype : {DType::I64, DType::I32}) {
    for (const BinaryOp op : {BinaryOp::Div, BinaryOp::Remainder}) {
      Data a = Data::filled(dtype, 20, 7), b = Data::filled(dtype, 20, 1), out(dtype, 20);
      b.set(11, 0);
      OnDevice on;
      on.run(Binary{op, on.put(out.view({20}), out), on.put(a.view({20}), a),
                    on.put(b.view({20}), b)});
      try {
        on.device().synchronize();
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_NE(std::string(error.what()).find("division of 7 by 0"), std::string::npos);
      }
    }
  }
}

TEST(CudaBinary, RefusesFunctionsThatIntegersDoNotHave) {
  Data a(DType::I32, 3);
  OnDevice on;
  const View view = on.put(a.view({3}), a);
  EXPECT_THROW(on.run(Binary{BinaryOp::Atan2, view, view, view}), Error);
}

}  // namespace
}  // namespace coshard::kernels
