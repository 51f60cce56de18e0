#pragma once
// The vectorised f32 and bf16 bodies of one instruction set, as a table of functions. The sources
// of this directory are compiled once per instruction set, each into its own namespace
// (COSHARD_ISA); kernels/cpu/cpu.cpp picks one.
#include "kernels/args.h"

// The kernels that have a vectorised body.
// clang-format off
#define COSHARD_SIMD_KERNELS(X) \
  X(Copy) X(Unary) X(UnaryGrad) X(Binary) X(SwiGlu) X(SwiGluGrad) X(ReduceDim) X(PowSum) \
  X(Softmax) X(SoftmaxGrad) X(LayerNorm) X(LayerNormGrad) X(RmsNorm) X(RmsNormGrad) \
  X(Embedding) X(EmbeddingGrad) X(Rope) X(Attention) X(AttentionGrad) \
  X(CrossEntropyStats) X(CrossEntropyGrad) X(Random) X(Dropout) X(AdamW) X(Sgd)
// clang-format on

namespace coshard::kernels::cpu {

struct Bodies {
#define X(Kernel)                          \
  void (*body_of_##Kernel)(const Kernel&); \
  void run(const Kernel& args) const { body_of_##Kernel(args); }
  COSHARD_SIMD_KERNELS(X)
#undef X
};

namespace v4 {
Bodies bodies();
}
namespace v3 {
Bodies bodies();
}
namespace baseline {
Bodies bodies();
}

}  // namespace coshard::kernels::cpu
