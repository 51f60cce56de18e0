#pragma once
// What one instruction set's sources define. Only included by the sources of this folder.
#include "kernels/cpu/simd/bodies.h"

namespace coshard::kernels::cpu::COSHARD_ISA {

#define X(Kernel) void run(const Kernel& args);
COSHARD_SIMD_KERNELS(X)
#undef X

}  // namespace coshard::kernels::cpu::COSHARD_ISA
