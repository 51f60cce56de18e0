#include "runtime/device/cuda/api.h"

#include <cstdio>

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

const CudaApi* in_use = nullptr;  // null: libcudart; written before any device is made

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

const CudaApi& cuda() { return in_use != nullptr ? *in_use : real_cuda(); }
void use_cuda(const CudaApi* table) { in_use = table; }

}  // namespace coshard
