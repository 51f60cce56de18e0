#pragma once
// The CUDA kernels as a separate library, libcoshard_cuda.so: libcoshard opens it when a program
// first requests a CUDA device (opened.cpp), and it uses only the libcoshard functions that it is
// passed then (entry.cpp). Not compiled if the kernels are linked in.
#include "kernels/libraries.h"
#include "kernels/run.h"
#include "runtime/device/cuda/api.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/reduce.h"
#include "runtime/device/cuda/strided_copy.h"

namespace coshard::kernels {

extern const KernelTable cuda_kernels;
Libraries cuda_libraries();

// The libcoshard functions that the kernels call; those of a device are virtual.
struct CudaHost {
  decltype(&fail) fail_;
  decltype(&coshard::cuda) cuda_;
  decltype(&launch_on) launch_on_;
};

// The functions that the module provides. Of a module of another version, only the first two
// members can be read.
struct CudaModule {
  const char* version;  // COSHARD_VERSION
  std::size_t layout;   // kCudaLayout, distinguishes builds of one version
  decltype(&real_cuda) calls;
  decltype(&reduce_on_device) reduce;
  decltype(&copy_rows_on_device) copy_rows;
  decltype(&coshard::first_kernel) first_kernel;
  decltype(&coshard::first_preparation) first_preparation;
  const KernelTable* kernels;
  decltype(&cuda_libraries) libraries;
};

// Changes with most changes of the structures that both sides share. kCudaInterface: to be raised
// with the virtual functions of Device, Stream and CudaDevice and the parameters of CudaModule's
// functions, which change no size.
constexpr std::size_t kCudaInterface = 2;
constexpr std::size_t kCudaLayout =
    1000000000 * kCudaInterface + sizeof(CudaHost) + 1000 * sizeof(CudaModule) +
    1000000 * (sizeof(KernelTable) + sizeof(CudaDevice)) + sizeof(CudaApi) + sizeof(CudaLaunch);

// The name of the only function that the module exports. It stores `host`, and calls nothing of it
// until it has returned and the caller has checked the version.
constexpr const char* kCudaEntry = "coshard_cuda_module";
using CudaEntry = const CudaModule* (*)(const CudaHost* host);

// Opens `name`, a path or a name for the loader. Error{Unsupported}: it is missing, or of another
// version; the message names both.
const CudaModule& open_cuda_module(const std::string& name);

}  // namespace coshard::kernels
