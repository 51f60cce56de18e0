#pragma once
// The fast host bodies: oneDNN matmul, vectorised f32 and bf16 loops picked once for the machine's
// instruction set; f64 and integers go to the reference loops. Thread-safe: scratch and primitive
// caches belong to the calling thread. Large work uses OpenMP when the calling thread's
// omp_get_max_threads() is above 1; outside Matmul the result does not depend on that number.
#include "kernels/args.h"

namespace coshard::kernels::cpu {

#define X(Kernel) void run(const Kernel& args);
COSHARD_KERNELS(X)
#undef X

// The instruction set in use: "x86-64-v4", "x86-64-v3" or "baseline".
const char* instruction_set();

}  // namespace coshard::kernels::cpu
