#pragma once
// The vectorised f32 and bf16 bodies of one instruction set, as a table of functions. The sources
// of this folder are compiled once per instruction set, each into a namespace of its own
// (COSHARD_ISA); kernels/cpu/cpu.cpp picks one.
#include "kernels/args.h"

namespace coshard::kernels::cpu {

template <class Args>
struct Body {
  void (*run)(const Args&);
};

struct Bodies : Body<Copy>,
                Body<Unary>,
                Body<UnaryGrad>,
                Body<Binary>,
                Body<SwiGlu>,
                Body<SwiGluGrad>,
                Body<ReduceDim>,
                Body<Softmax>,
                Body<SoftmaxGrad>,
                Body<LayerNorm>,
                Body<LayerNormGrad>,
                Body<RmsNorm>,
                Body<RmsNormGrad>,
                Body<Embedding>,
                Body<EmbeddingGrad>,
                Body<Rope>,
                Body<Attention>,
                Body<AttentionGrad>,
                Body<RowMax>,
                Body<CrossEntropyStats>,
                Body<CrossEntropyGrad>,
                Body<Random>,
                Body<Dropout>,
                Body<AdamW>,
                Body<Sgd>,
                Body<PowSum> {};

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
