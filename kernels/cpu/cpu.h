#pragma once
// The fast host kernels: oneDNN matmul of f32 and bf16, vectorised loops for the floating-point
// dtypes, selected once for the machine's instruction set; integers use the reference loops.
// Thread-safe: scratch memory and primitive caches are thread-local. Large work uses OpenMP if the
// calling thread's omp_get_max_threads() is above 1; except for oneDNN's matmul, results do not
// depend on that number.
#include "kernels/args.h"
#include "kernels/cpu/simd/bodies.h"
#include "kernels/reference/reference.h"

namespace coshard::kernels::cpu {

// What has no fast body runs the reference loops.
template <class Kernel>
void run(const Kernel& args) {
  reference::run(args);
}
#define X(Kernel) void run(const Kernel& args);
COSHARD_SIMD_KERNELS(X)
X(Fill)
#undef X

// Matmul of any dtypes that are equal, without oneDNN and without an epilogue. An element's sum
// depends neither on the number of threads nor on the other rows and columns.
void run_packed(const Matmul& args);

// The instruction set in use: "x86-64-v4", "x86-64-v3" or "baseline".
const char* instruction_set();

}  // namespace coshard::kernels::cpu
