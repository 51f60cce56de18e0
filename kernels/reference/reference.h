#pragma once
// The oracle: every kernel of kernels/args.h as plain loops that accumulate in double.
// Single-threaded, any thread, no state. `cpu` uses these for f64 and the integer dtypes; tests
// compare every faster body with them. Error{Unsupported} names a dtype that the kernel does not
// take.
#include "kernels/args.h"

namespace coshard::kernels::reference {

void run(const Copy& args);
void run(const Fill& args);
void run(const Unary& args);
void run(const UnaryGrad& args);
void run(const Binary& args);
void run(const SwiGlu& args);
void run(const SwiGluGrad& args);
void run(const Matmul& args);
void run(const ReduceDim& args);
void run(const Softmax& args);
void run(const SoftmaxGrad& args);
void run(const LayerNorm& args);
void run(const LayerNormGrad& args);
void run(const RmsNorm& args);
void run(const RmsNormGrad& args);
void run(const Embedding& args);
void run(const EmbeddingGrad& args);
void run(const Rope& args);
void run(const Attention& args);
void run(const AttentionGrad& args);
void run(const RowMax& args);
void run(const CrossEntropyStats& args);
void run(const CrossEntropyGrad& args);
void run(const Random& args);
void run(const Dropout& args);
void run(const AdamW& args);
void run(const Sgd& args);
void run(const PowSum& args);

}  // namespace coshard::kernels::reference
