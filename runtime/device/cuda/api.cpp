#include "runtime/device/cuda/api.h"

#include <cuda.h>

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

// A call of the driver library, which may not be there; found once.
template <class Function>
Function driver_call(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
  if (status != cudaSuccess || result != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<Function>(found);
}

cudaError_t runtime_status(CUresult result) {
  if (result == CUDA_SUCCESS) return cudaSuccess;
  return result == CUDA_ERROR_NOT_SUPPORTED ? cudaErrorNotSupported : cudaErrorUnknown;
}

cudaError_t stream_wait_value(cudaStream_t stream, const std::uint64_t* at, std::uint64_t value) {
  static const auto call =
      driver_call<CUresult (*)(CUstream, CUdeviceptr, cuuint64_t, unsigned)>("cuStreamWaitValue64");
  if (call == nullptr) return cudaErrorNotSupported;
  return runtime_status(
      call(stream, reinterpret_cast<CUdeviceptr>(at), value, CU_STREAM_WAIT_VALUE_GEQ));
}

cudaError_t stream_write_value(cudaStream_t stream, std::uint32_t* at, std::uint32_t value) {
  static const auto call = driver_call<CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned)>(
      "cuStreamWriteValue32");
  if (call == nullptr) return cudaErrorNotSupported;
  return runtime_status(
      call(stream, reinterpret_cast<CUdeviceptr>(at), value, CU_STREAM_WRITE_VALUE_DEFAULT));
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
      stream_wait_value,
      stream_write_value,
  };
  return table;
}

const CudaApi& cuda() { return in_use != nullptr ? *in_use : real_cuda(); }
void use_cuda(const CudaApi* table) { in_use = table; }

}  // namespace coshard
