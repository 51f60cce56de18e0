#pragma once
// What each kernel has to do: floating-point operations of products and attention, and the bytes
// that it reads and writes, counting each operand once. Pure functions.
#include "kernels/args.h"
#include "runtime/device/sim/processor_model.h"

namespace coshard::kernels {

#define X(Kernel) KernelWork work_of(const Kernel& args);
COSHARD_KERNELS(X)
#undef X

}  // namespace coshard::kernels
