#pragma once
// The kernels for CUDA devices. Each call queues its work on the device's compute stream and
// returns; scratch memory is ordered by that stream. Called on the rank's thread.
// Error{Unsupported} names a dtype that the kernel does not support. An index out of range is
// stored in the device's DeviceAssert, and thrown by the host's next wait.
#include "kernels/args.h"
#include "runtime/device/cuda/cuda_device.h"

namespace coshard::kernels::cuda {

#define X(Kernel) void run(CudaDevice& device, const Kernel& args);
COSHARD_KERNELS(X)
#undef X

}  // namespace coshard::kernels::cuda
