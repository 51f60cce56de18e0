// The table of libcudart's calls. Separate from api.cpp, so that only the kernels link the library.
#include <cstdio>

#include "runtime/device/cuda/api.h"

namespace coshard {
namespace {

cudaError_t device_name(char* name, int length, int device) {
  cudaDeviceProp properties{};
  const cudaError_t status = cudaGetDeviceProperties(&properties, device);
  if (status == cudaSuccess)
    std::snprintf(name, static_cast<std::size_t>(length), "%s", properties.name);
  return status;
}

cudaError_t launch_kernel(const CudaLaunch& launch) {
  void* arguments[] = {const_cast<void*>(launch.kernel)};
  return cudaLaunchKernel(launch.function, dim3(launch.blocks), dim3(launch.threads), arguments,
                          launch.shared_bytes, static_cast<cudaStream_t>(launch.stream));
}

}  // namespace

const CudaApi& real_cuda() {
  static const CudaApi table = {
#define X(name) &::cuda##name,
      COSHARD_CUDA_CALLS(X)
#undef X
          device_name,
      launch_kernel,
  };
  return table;
}

}  // namespace coshard
