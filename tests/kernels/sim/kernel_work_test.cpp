#include "kernels/sim/kernel_work.h"

#include <gtest/gtest.h>

namespace coshard::kernels {
namespace {

View view(std::initializer_list<std::int64_t> shape, DType dtype = DType::BF16) {
  static char somewhere[1];
  View v;
  v.data = somewhere;
  v.dtype = dtype;
  v.ndim = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), v.shape.begin());
  std::int64_t stride = 1;
  for (int d = v.ndim; d-- > 0;) {
    v.strides[static_cast<std::size_t>(d)] = stride;
    stride *= v.shape[static_cast<std::size_t>(d)];
  }
  return v;
}

TEST(KernelWork, AProductCountsTwoFlopsPerTermAndEachOperandOnce) {
  const KernelWork work = work_of(Matmul{view({3, 8, 16}), view({3, 8, 32}), view({3, 32, 16})});
  EXPECT_EQ(work.what, ComputeClass::Gemm);
  EXPECT_EQ(work.batch, 3);
  EXPECT_EQ(work.m, 8);
  EXPECT_EQ(work.n, 16);
  EXPECT_EQ(work.k, 32);
  EXPECT_EQ(work.flops, 2.0 * 3 * 8 * 16 * 32);
  EXPECT_EQ(work.bytes, 2.0 * 3 * (8 * 16 + 8 * 32 + 32 * 16));
}

TEST(KernelWork, CausalAttentionCountsHalfTheScoresAndItsGradientTwoAndAHalfTimes) {
  Attention forward{};
  forward.q = view({2, 4, 64, 16}), forward.k = view({2, 1, 64, 16}),
  forward.v = view({2, 1, 64, 16}), forward.out = view({2, 4, 64, 16});
  forward.causal = false;
  EXPECT_EQ(work_of(forward).flops, 4.0 * 2 * 4 * 64 * 64 * 16);
  forward.causal = true;
  EXPECT_EQ(work_of(forward).flops, 2.0 * 2 * 4 * 64 * 64 * 16);
  forward.diagonal = -60;  // the last four queries see 1, 2, 3 and 4 keys
  EXPECT_EQ(work_of(forward).flops, 4.0 * 2 * 4 * (1 + 2 + 3 + 4) * 16);
  forward.window = 2;  // and 1, 2, 2 and 2 in a window
  EXPECT_EQ(work_of(forward).flops, 4.0 * 2 * 4 * (1 + 2 + 2 + 2) * 16);
  AttentionGrad backward{};
  backward.q = forward.q, backward.k = forward.k, backward.v = forward.v;
  backward.causal = true;
  EXPECT_EQ(work_of(backward).flops, 2.5 * 2 * 2 * 4 * 64 * 64 * 16);
}

TEST(KernelWork, ABroadcastOperandIsReadOnce) {
  View row = view({64, 32});
  row.strides[0] = 0;
  const Binary add{BinaryOp::Add, view({64, 32}), view({64, 32}), row};
  EXPECT_EQ(work_of(add).bytes, 2.0 * (64 * 32 + 64 * 32 + 32));
}

TEST(KernelWork, AdamWMovesParametersGradientsMomentsAndTheMasterCopy) {
  char memory[1];
  const AdamWTensor tensor{1000, memory, memory, memory, memory, memory};
  AdamW update{};
  update.dtype = DType::BF16;
  update.tensors = std::span(&tensor, 1);
  EXPECT_EQ(work_of(update).bytes, 1000.0 * (3 * 2 + 4 * 4 + 2 * 4));
}

}  // namespace
}  // namespace coshard::kernels
