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

// The NUMA node next to a PCI device, and that node's CPUs ("32-63"), as the kernel tells them under
// `sysfs`; -1 and empty where it does not.
struct NumaPlace {
  int node = -1;
  std::string cpus;
};
NumaPlace numa_place(const std::string& pci_address, const std::string& sysfs = "/sys");

}  // namespace coshard
