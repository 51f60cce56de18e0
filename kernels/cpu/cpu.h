#pragma once
// The fast host kernels: oneDNN matmul, vectorised f32 and bf16 loops selected once for the
// machine's instruction set; f64 and integers use the reference loops. Thread-safe: scratch memory
// and primitive caches are thread-local. Large work uses OpenMP if the calling thread's
// omp_get_max_threads() is above 1; except for Matmul, results do not depend on that number.
#include "kernels/args.h"

namespace coshard::kernels::cpu {

#define X(Kernel) void run(const Kernel& args);
COSHARD_KERNELS(X)
#undef X

// The instruction set in use: "x86-64-v4", "x86-64-v3" or "baseline".
const char* instruction_set();

}  // namespace coshard::kernels::cpu
