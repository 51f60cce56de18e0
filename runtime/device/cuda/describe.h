#pragma once
// What of CUDA this machine has: driver, runtime, devices. Any thread; starts nothing.
#include <string>

#include "runtime/device/describe.h"

namespace coshard {

// Whether devices can be used, and if not why not.
struct CudaPresence {
  bool loaded = true;  // false: the kernels are a module that is missing; there are no devices then
  int devices = 0;
  int driver = 0, runtime = 0;  // the CUDA that the driver serves, and libcudart's: 13000 for 13.0
  std::string problem, hint;    // empty with devices; not loaded: the hint is in the problem
};
CudaPresence cuda_presence();

BackendDescription describe_cuda();

}  // namespace coshard
