// The tables of vectorised bodies, one for each instruction set that this machine has.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cpu/simd/bodies.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {

using namespace testing;

using cpu::Bodies;

std::vector<Bodies> bodies_here() {
  std::vector<Bodies> all{cpu::baseline::bodies()};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    all.push_back(cpu::v3::bodies());
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512cd"))
    all.push_back(cpu::v4::bodies());
#endif
  return all;
}

TEST(SimdBodies, AreThereForEveryKernelOfTheList) {
  for (const Bodies& bodies : bodies_here()) {
#define X(Kernel) EXPECT_NE(bodies.body_of_##Kernel, nullptr) << #Kernel;
    COSHARD_SIMD_KERNELS(X)
#undef X
  }
}

TEST(SimdBodies, OfEveryInstructionSetAgreeWithTheReference) {
  for (const Bodies& bodies : bodies_here()) {
    for (const std::int64_t n : {1, 7, 64, 100}) {
      const Data x = Data::normal(DType::F32, 3 * n, 1);
      Data got(DType::F32, 3 * n), want(DType::F32, 3 * n);
      bodies.run(Softmax{DType::F32, false, 3, n, 1, x.ptr(), got.ptr()});
      reference::run(Softmax{DType::F32, false, 3, n, 1, x.ptr(), want.ptr()});
      expect_close(got, want, "softmax");
      bodies.run(Unary{UnaryOp::Tanh, DType::F32, 3 * n, x.ptr(), got.ptr()});
      reference::run(Unary{UnaryOp::Tanh, DType::F32, 3 * n, x.ptr(), want.ptr()});
      expect_close(got, want, "tanh");
    }
  }
}

}  // namespace
}  // namespace coshard::kernels
