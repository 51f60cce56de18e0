#pragma once
// The kernels that one instruction set's sources define. Only included by the sources of this
// directory.
#include "kernels/cpu/simd/bodies.h"

namespace coshard::kernels::cpu::COSHARD_ISA {

#define X(Kernel) void run(const Kernel& args);
COSHARD_SIMD_KERNELS(X)
#undef X

}  // namespace coshard::kernels::cpu::COSHARD_ISA
