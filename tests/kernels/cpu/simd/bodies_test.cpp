// The tables of vectorised bodies, one for each instruction set that this machine has.
#include "kernels/reference/reference.h"
#include "tests/kernels/cpu/simd/sets.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {

using namespace testing;

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

}  // namespace
}  // namespace coshard::kernels
