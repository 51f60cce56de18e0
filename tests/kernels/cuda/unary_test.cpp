#include <limits>

#include <coshard/runtime/error.h>
#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels {
namespace {

using namespace testing;

void* behind(void* data, DType dtype, std::int64_t elements) {
  return static_cast<std::byte*>(data) + elements * static_cast<std::int64_t>(size_of(dtype));
}

// Elements [skip, count - 1) of x into those of y, `ahead` further on; the others stay.
void compare(UnaryOp op, Data x, double alpha, std::int64_t skip = 0, std::int64_t ahead = 0) {
  const DType dtype = x.dtype();
  Data y = Data::filled(dtype, x.count() + ahead, 7);
  Data want = y;
  const std::int64_t count =
      skip == 0 ? x.count() : std::max<std::int64_t>(0, x.count() - skip - 1);
  OnDevice on;
  Unary args{op,
             dtype,
             count,
             behind(on.put(x), dtype, skip),
             behind(on.put(y), dtype, skip + ahead),
             alpha,
             alpha + 0.5};
  on.run(args);
  args.x = behind(x.ptr(), dtype, skip);
  args.y = behind(want.ptr(), dtype, skip + ahead);
  reference::run(args);
  expect_close(on.get(y), want, std::string(to_string(op)));
}

TEST(CudaUnary, MatchesTheReference) {
  for (const UnaryOp op : every_unary_op())
    for (const DType dtype : kFloating)
      for (const std::int64_t count : {0, 1, 17, 1030})
        for (const double alpha : {2, 3}) compare(op, Data::normal(dtype, count, 1, 3), alpha);
}

TEST(CudaUnary, TakesArraysThatStartAnywhere) {
  for (const DType dtype : {DType::F32, DType::F64, DType::BF16, DType::I64, DType::I32})
    for (std::int64_t skip = 0; skip < 9; ++skip)
      for (const std::int64_t ahead : {0, 1, 8})
        for (const std::int64_t count : {3, 40, 530})
          compare(UnaryOp::Square, Data::integers(dtype, count, 1, -9, 9), 0, skip, ahead);
}

TEST(CudaUnary, KeepsInfinitiesZerosAndNaN) {
  const double inf = std::numeric_limits<double>::infinity();
  const double values[] = {inf, -inf, 0.0, -0.0, std::nan(""), 1e-40, -1e-40, 3e38, 200, -200};
  for (const DType dtype : kFloating) {
    Data x(dtype, 10);
    for (int i = 0; i < 10; ++i) x.set(i, values[i]);
    for (const UnaryOp op :
         {UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Exp, UnaryOp::Log, UnaryOp::Sqrt, UnaryOp::Rsqrt,
          UnaryOp::Tanh, UnaryOp::Sigmoid, UnaryOp::Relu, UnaryOp::Sign, UnaryOp::Erf,
          UnaryOp::LeakyRelu, UnaryOp::Clamp, UnaryOp::Floor, UnaryOp::Softplus})
      compare(op, x, 0);
  }
}

TEST(CudaUnary, IsAccurateOverTheRangeOfF32) {
  Data x(DType::F32, 4001);
  for (std::int64_t i = 0; i < x.count(); ++i) x.set(i, (double(i) - 2000) / 20);
  for (const UnaryOp op : {UnaryOp::Tanh, UnaryOp::Sigmoid, UnaryOp::Silu, UnaryOp::Gelu,
                           UnaryOp::Sin, UnaryOp::Cos, UnaryOp::Erf}) {
    Data y(DType::F32, x.count());
    Data want = y;
    OnDevice on;
    on.run(Unary{op, DType::F32, x.count(), on.put(x), on.put(y)});
    reference::run(Unary{op, DType::F32, x.count(), x.ptr(), want.ptr()});
    expect_close(on.get(y), want, 1e-6, std::string(to_string(op)));
  }
}

TEST(CudaUnary, TakesIntegersWhereTheyMakeSense) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::I64, DType::I32}) {
    for (const UnaryOp op :
         {UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Relu, UnaryOp::Square, UnaryOp::Sign, UnaryOp::Floor,
          UnaryOp::Clamp, UnaryOp::AddScalar, UnaryOp::MulScalar, UnaryOp::PowScalar})
      for (const double alpha : {-2.0, 0.0, 3.0, 50.0, -inf})
        if (alpha > -inf || op == UnaryOp::Clamp)
          compare(op, Data::integers(dtype, 100, 3, -9, 9), alpha);
    Data x(dtype, 3);
    OnDevice on;
    EXPECT_THROW(on.run(Unary{UnaryOp::Exp, dtype, 3, on.put(x), on.put(x)}), Error);
  }
}

TEST(CudaSwiGlu, AndItsGradientsMatchTheReference) {
  for (const DType dtype : kFloating) {
    for (const std::int64_t count : kCounts) {
      const Data a = Data::normal(dtype, count, 1, 3), b = Data::normal(dtype, count, 2),
                 dy = Data::normal(dtype, count, 3);
      const Data got[3] = {{dtype, count}, {dtype, count}, {dtype, count}};
      Data want[3] = {{dtype, count}, {dtype, count}, {dtype, count}};
      OnDevice on;
      on.run(SwiGlu{dtype, count, on.put(a), on.put(b), on.put(got[0])});
      on.run(SwiGluGrad{dtype, count, on.put(dy), on.put(a), on.put(b), on.put(got[1]),
                        on.put(got[2])});
      reference::run(SwiGlu{dtype, count, a.ptr(), b.ptr(), want[0].ptr()});
      reference::run(
          SwiGluGrad{dtype, count, dy.ptr(), a.ptr(), b.ptr(), want[1].ptr(), want[2].ptr()});
      for (int i = 0; i < 3; ++i)
        expect_close(on.get(got[i]), want[i], "swiglu " + std::to_string(i));
    }
  }
}

}  // namespace
}  // namespace coshard::kernels
