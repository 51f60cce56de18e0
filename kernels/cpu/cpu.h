#pragma once
// The fast host bodies: oneDNN matmul, vectorised f32 and bf16 loops picked once for the machine's
// instruction set; f64 and integers go to the reference loops. Thread-safe: scratch and primitive
// caches belong to the calling thread. Large work uses OpenMP when the calling thread's
// omp_get_max_threads() is above 1; outside Matmul the result does not depend on that number.
#include "kernels/args.h"

namespace coshard::kernels::cpu {

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

// The instruction set in use: "x86-64-v4", "x86-64-v3" or "baseline".
const char* instruction_set();

}  // namespace coshard::kernels::cpu
