#include "runtime/device/cuda/api.h"

#include <cstdio>
#include <map>
#include <mutex>
#include <utility>

namespace coshard {
namespace {

cudaError_t device_name(char* name, int length, int device) {
  cudaDeviceProp properties{};
  const cudaError_t status = cudaGetDeviceProperties(&properties, device);
  if (status == cudaSuccess)
    std::snprintf(name, static_cast<std::size_t>(length), "%s", properties.name);
  return status;
}

// A block gets more than 48 KiB of shared memory only from a function that was told so, once for
// each device.
cudaError_t allow_shared_bytes(const void* function, std::size_t bytes) {
  static std::mutex mutex;
  static std::map<std::pair<int, const void*>, std::size_t> allowed;
  if (bytes <= 48 * 1024) return cudaSuccess;
  int device = 0;
  if (const cudaError_t status = cudaGetDevice(&device); status != cudaSuccess) return status;
  const std::lock_guard lock(mutex);
  std::size_t& largest = allowed[{device, function}];
  if (bytes <= largest) return cudaSuccess;
  const cudaError_t status = cudaFuncSetAttribute(
      function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (status == cudaSuccess) largest = bytes;
  return status;
}

cudaError_t launch_kernel(const CudaLaunch& launch) {
  const cudaError_t status = allow_shared_bytes(launch.function, launch.shared_bytes);
  if (status != cudaSuccess) return status;
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
