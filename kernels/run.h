#pragma once
// Runs one kernel of kernels/args.h on a device, on the back end of its kind: where it is called
// (cpu), or queued on the compute stream (cuda). Called on the rank's thread.
#include <coshard/runtime/device/device.h>
#include <coshard/runtime/error.h>
#include "kernels/args.h"
#include "kernels/backends.h"

namespace coshard::kernels {

// The bodies of one back end: a function for each kernel, in the order of COSHARD_KERNELS.
struct KernelTable {
  DeviceKind kind;
#define X(Kernel) void (*Kernel##_)(Device & device, const Kernel& args);
  COSHARD_KERNELS(X)
#undef X
};

#define X(name) extern const KernelTable name##_kernels;
COSHARD_KERNEL_BACKENDS(X)
#undef X

// Error{Unsupported} for a device kind without kernels in this build.
const KernelTable& kernels_of(DeviceKind kind);

// Error{Unsupported} for a device kind without kernels in this build, or for a dtype the kernel
// does not take.
#define X(Kernel)                                       \
  inline void run(Device& device, const Kernel& args) { \
    kernels_of(device.kind()).Kernel##_(device, args);  \
  }
COSHARD_KERNELS(X)
#undef X

}  // namespace coshard::kernels
