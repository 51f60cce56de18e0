#pragma once
// The kernels for CUDA devices as a library of their own, libcoshard_cuda.so: which libcoshard
// opens when a program first asks for such a device (opened.cpp), and which needs nothing of
// libcoshard but what it is given then (entry.cpp). Where the kernels are linked in, none of this
// is compiled.
#include "kernels/libraries.h"
#include "kernels/run.h"
#include "runtime/device/cuda/api.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/reduce.h"
#include "runtime/device/cuda/strided_copy.h"

namespace coshard::kernels {

Libraries cuda_libraries();

// What the kernels call.
struct CudaHost {
  decltype(&fail) fail_;
  decltype(&coshard::cuda) cuda_;
  decltype(&launch_on) launch_on_;
  decltype(&CudaDevice::allocate) allocate;
  decltype(&CudaDevice::deallocate) deallocate;
  decltype(&CudaDevice::compute_stream) compute_stream;
  decltype(&CudaDevice::make_current) make_current;
  decltype(&CudaDevice::make_buffer) make_buffer;
};

// What they give. Of another version only the first two can be read.
struct CudaModule {
  const char* version;  // COSHARD_VERSION
  std::size_t layout;   // kCudaLayout, which tells builds of one version apart
  decltype(&real_cuda) calls;
  decltype(&reduce_on_device) reduce;
  decltype(&copy_rows_on_device) copy_rows;
  decltype(&KernelEntry::first) first_kernel;
  decltype(&DevicePreparation::first) first_preparation;
  const KernelTable* kernels;
  decltype(&cuda_libraries) libraries;
};

// Changes, mostly, with what both sides read of each other.
constexpr std::size_t kCudaLayout = sizeof(CudaHost) + 1000 * sizeof(CudaModule) +
                                    1000000 * (sizeof(KernelTable) + sizeof(CudaDevice)) +
                                    sizeof(CudaApi) + sizeof(CudaLaunch);

// The one function that the module exports, by its name. It keeps `host`, and calls nothing of it
// before this has returned and been found to be of the caller's version.
constexpr const char* kCudaEntry = "coshard_cuda_module";
using CudaEntry = const CudaModule* (*)(const CudaHost* host);

// Opens `name`, a path or what the loader finds. Error{Unsupported}: it is not there, or of another
// version; the text names both.
const CudaModule& open_cuda_module(const std::string& name);

}  // namespace coshard::kernels
