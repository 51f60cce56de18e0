#pragma once
// The CUDA installation of this machine: driver, runtime, devices. Any thread; creates no Device.
#include <string>

#include "runtime/device/describe.h"

namespace coshard {

// Whether there are usable devices, and if not, why.
struct CudaPresence {
  bool loaded = true;  // false: the module of the kernels is missing; no devices
  int devices = 0;
  int driver = 0, runtime = 0;  // CUDA versions of driver and libcudart: 13000 for 13.0
  std::string problem, hint;    // empty if there are devices; not loaded: only `problem`
};
CudaPresence cuda_presence();

BackendDescription describe_cuda();

}  // namespace coshard
