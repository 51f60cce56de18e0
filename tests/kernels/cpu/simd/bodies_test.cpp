// The tables of vectorised bodies, one for each instruction set that this machine has.
#include <range/v3/view/cartesian_product.hpp>

#include "kernels/reference/reference.h"
#include "tests/kernels/cpu/simd/sets.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {

using namespace testing;
using ranges::views::cartesian_product;

TEST(SimdBodies, AreThereForEveryKernelOfTheList) {
  for (const SimdSet& set : kSets) {
#define X(Kernel) EXPECT_NE(set.narrow.body_of_##Kernel, nullptr) << #Kernel;
    COSHARD_SIMD_KERNELS(X)
#undef X
#define X(Kernel) EXPECT_NE(set.f64.body_of_##Kernel, nullptr) << #Kernel;
    COSHARD_SIMD_F64_KERNELS(X)
#undef X
    EXPECT_EQ(set.f64.body_of_Random, nullptr);
  }
}

TEST(SimdBodies, OfEveryInstructionSetAgreeWithTheReference) {
  for (const SimdSet& set : kSets) {
    for (const DType dtype : kFloating) {
      for (const std::int64_t n : {1, 7, 64, 100}) {
        const Data x = Data::normal(dtype, 3 * n, 1);
        Data got(dtype, 3 * n), want(dtype, 3 * n);
        set.of(dtype).run(Softmax{dtype, false, 3, n, 1, x.ptr(), got.ptr()});
        reference::run(Softmax{dtype, false, 3, n, 1, x.ptr(), want.ptr()});
        expect_close(got, want, set.name + " softmax");
        for (const UnaryOp op : {UnaryOp::Tanh, UnaryOp::Erf, UnaryOp::Exp, UnaryOp::Log}) {
          set.of(dtype).run(Unary{op, dtype, 3 * n, x.ptr(), got.ptr()});
          reference::run(Unary{op, dtype, 3 * n, x.ptr(), want.ptr()});
          expect_close(got, want, set.name + " " + std::string(to_string(op)));
        }
      }
    }
  }
}

// Rows that are whole registers, or end in a part of one, or are longer than a block.
TEST(SimdBodies, OfEveryInstructionSetAgreeWithTheReferenceOnStridesAndLines) {
  const std::vector<std::int64_t> widths{1, 5, 64, 70, 1100};
  for (const auto& [set, dtype, n] : cartesian_product(kSets, kFloating, widths)) {
    Data x = Data::normal(dtype, 3 * n, 1), y = Data::normal(dtype, 6 * n, 2);
    const std::vector<std::int64_t> shape{3, n};
    const View row = {y.ptr(), dtype, 2, {3, n}, {0, 1}};
    const View column = {y.ptr(), dtype, 2, {3, n}, {1, 0}};
    const View second = {y.ptr(), dtype, 2, {3, n}, {2 * n, 2}};
    for (const View& right : {row, column, second, View{}}) {
      Data got(dtype, 3 * n), want(dtype, 3 * n), is(DType::Bool, 3 * n), was(DType::Bool, 3 * n);
      set.of(dtype).run(Binary{BinaryOp::Add, got.view(shape), x.view(shape), right, 0.3});
      reference::run(Binary{BinaryOp::Add, want.view(shape), x.view(shape), right, 0.3});
      expect_close(got, want, set.name + " add");
      set.of(dtype).run(Binary{BinaryOp::Lt, is.view(shape), x.view(shape), right});
      reference::run(Binary{BinaryOp::Lt, was.view(shape), x.view(shape), right});
      EXPECT_EQ(is, was) << set.name << dtype << n;
    }
    Data got(dtype, 3 * n), want(dtype, 3 * n);
    set.of(dtype).run(Binary{BinaryOp::Mul, got.view(shape, {1, 0}), x.view(shape), row});
    reference::run(Binary{BinaryOp::Mul, want.view(shape, {1, 0}), x.view(shape), row});
    expect_close(got, want, set.name + " mul");
    for (const bool log : {false, true}) {
      set.of(dtype).run(Softmax{dtype, log, 1, 3, n, x.ptr(), got.ptr()});
      reference::run(Softmax{dtype, log, 1, 3, n, x.ptr(), want.ptr()});
      expect_close(got, want, set.name + " softmax of lines");
      set.of(dtype).run(SoftmaxGrad{dtype, log, 1, 3, n, y.ptr(), x.ptr(), got.ptr()});
      reference::run(SoftmaxGrad{dtype, log, 1, 3, n, y.ptr(), x.ptr(), want.ptr()});
      expect_close(got, want, set.name + " gradient of a softmax of lines");
    }
    for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Min}) {
      Data sums(dtype, n + 3), right(dtype, n + 3);
      set.of(dtype).run(ReduceDim{op, dtype, 1, 3, n, x.ptr(), sums.ptr()});
      reference::run(ReduceDim{op, dtype, 1, 3, n, x.ptr(), right.ptr()});
      expect_close(sums, right, set.name + " columns");
      set.of(dtype).run(ReduceDim{op, dtype, 1, n, 3, x.ptr(), sums.ptr()});
      reference::run(ReduceDim{op, dtype, 1, n, 3, x.ptr(), right.ptr()});
      expect_close(sums, right, set.name + " few columns");
    }
  }
}

}  // namespace
}  // namespace coshard::kernels
