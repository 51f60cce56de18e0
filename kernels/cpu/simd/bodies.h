#pragma once
// The vectorised bodies of one instruction set, as a table of functions. The sources of this
// directory are compiled twice per instruction set, for f32, bf16 and f16 and for f64, each into its
// own namespace (COSHARD_ISA); kernels/cpu/cpu.cpp picks one pair.
#include "kernels/args.h"
#include "kernels/cpu/few_rows.h"

// The kernels that have a vectorised body for every floating-point dtype, and for all but f64.
// clang-format off
#define COSHARD_SIMD_F64_KERNELS(X) \
  X(Matmul) X(Unary) X(UnaryGrad) X(Binary) X(SwiGlu) X(SwiGluGrad) X(ReduceDim) X(PowSum) \
  X(Softmax) X(SoftmaxGrad) X(LayerNorm) X(LayerNormGrad) X(RmsNorm) X(RmsNormGrad) \
  X(Embedding) X(EmbeddingGrad) X(Rope) X(Attention) X(AttentionGrad) \
  X(CrossEntropyStats) X(CrossEntropyGrad) X(AdamW) X(Sgd)
#define COSHARD_SIMD_KERNELS(X) COSHARD_SIMD_F64_KERNELS(X) X(Copy) X(FewRows) X(Random) X(Dropout)
// clang-format on

namespace coshard::kernels::cpu {

// What the set does not have is null.
struct Bodies {
#define X(Kernel)                          \
  void (*body_of_##Kernel)(const Kernel&); \
  void run(const Kernel& args) const { body_of_##Kernel(args); }
  COSHARD_SIMD_KERNELS(X)
#undef X
};

#define X(Set)     \
  namespace Set {  \
  Bodies bodies(); \
  }
X(v4) X(v4_f64) X(v3) X(v3_f64) X(baseline) X(baseline_f64)
#undef X

}  // namespace coshard::kernels::cpu
