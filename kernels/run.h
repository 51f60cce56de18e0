#pragma once
// Runs one kernel of kernels/args.h with the device's back end: immediately (cpu), or queued on the
// compute stream (cuda). Called on the rank's thread.
#include <coshard/runtime/device/device.h>
#include <coshard/runtime/error.h>
#include "kernels/args.h"

namespace coshard::kernels {

// The kernels of one back end: a function for each, in the order of COSHARD_KERNELS.
struct KernelTable {
  DeviceKind kind;
#define X(Kernel) void (*Kernel##_)(Device & device, const Kernel& args);
  COSHARD_KERNELS(X)
#undef X
};

// Error{Unsupported} for a device kind that has no kernels in this build.
const KernelTable& kernels_of(DeviceKind kind);
// Registers kernels for a device kind outside this build, before any of them is run; any thread.
// `table` must outlive all uses; adding it again is a no-op.
void add_kernels(const KernelTable& table);

// Error{Unsupported} for a device kind that has no kernels in this build, or a dtype that the
// kernel does not support.
#define X(Kernel)                                       \
  inline void run(Device& device, const Kernel& args) { \
    kernels_of(device.kind()).Kernel##_(device, args);  \
  }
COSHARD_KERNELS(X)
#undef X

}  // namespace coshard::kernels
