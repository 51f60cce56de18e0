#pragma once
// The work of each kernel: floating-point operations of matmul and attention, and the bytes read
// and written, counting each operand once; not of those that tell their bytes. Pure functions.
#include "kernels/args.h"
#include "runtime/device/sim/processor_model.h"

namespace coshard::kernels {

#define X(Kernel) KernelWork work_of(const Kernel& args);
COSHARD_KERNELS(X)
#undef X

}  // namespace coshard::kernels
