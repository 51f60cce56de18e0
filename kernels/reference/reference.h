#pragma once
// The oracle: every kernel of kernels/args.h as plain loops that accumulate in double.
// Single-threaded, any thread, stateless. `cpu` uses these for f64 and the integer dtypes; tests
// compare every optimised kernel with them. Error{Unsupported} names a dtype that the kernel does
// not support.
#include "kernels/args.h"

namespace coshard::kernels::reference {

#define X(Kernel) void run(const Kernel& args);
COSHARD_KERNELS(X)
#undef X

}  // namespace coshard::kernels::reference
