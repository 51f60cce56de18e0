#pragma once
// The function table that every CUDA runtime call goes through. Filled from libcudart, or in tests
// from a fake driver (tests/support/fake_cuda). A process chooses its table before it creates its
// first device and never changes it while one lives; any thread may call through it.
#include <cuda_runtime_api.h>

#include "runtime/device/cuda/launch.h"

// clang-format off
#define COSHARD_CUDA_CALLS(X) \
  X(DeviceCanAccessPeer) X(DeviceEnablePeerAccess) X(DeviceGetAttribute) \
  X(DeviceGetStreamPriorityRange) X(DeviceSynchronize) X(DriverGetVersion) \
  X(EventCreateWithFlags) X(EventDestroy) X(EventElapsedTime) X(EventQuery) X(EventRecord) X(Free) \
  X(FreeAsync) \
  X(FreeHost) X(FuncGetAttributes) X(FuncSetAttribute) X(GetDevice) X(GetDeviceCount) \
  X(GetErrorName) X(GetErrorString) X(GetLastError) X(GraphDestroy) X(GraphExecDestroy) \
  X(GraphInstantiate) X(GraphLaunch) X(HostAlloc) X(Malloc) X(MallocFromPoolAsync) X(MemGetInfo) \
  X(MemPoolCreate) X(MemPoolDestroy) X(MemPoolGetAttribute) X(MemPoolSetAccess) \
  X(MemPoolSetAttribute) X(MemPoolTrimTo) X(MemcpyAsync) X(MemsetAsync) X(RuntimeGetVersion) \
  X(SetDevice) X(StreamBeginCapture) X(StreamCreateWithPriority) X(StreamDestroy) \
  X(StreamEndCapture) X(StreamQuery) X(StreamSynchronize) X(StreamWaitEvent) \
  X(ThreadExchangeStreamCaptureMode)
// clang-format on

namespace coshard {

struct CudaApi {
#define X(name) decltype(&::cuda##name) name;
  COSHARD_CUDA_CALLS(X)
#undef X
  // The part of cudaGetDeviceProperties that is needed: the marketing name of a device.
  cudaError_t (*DeviceName)(char* name, int length, int device);
  // cudaLaunchKernel with one argument, the kernel object (launch.h).
  cudaError_t (*Launch)(const CudaLaunch& launch);
};

// The table in use: libcudart's unless use_cuda() set another.
const CudaApi& cuda();
// libcudart is linked into the kernels. Error{Unsupported}: the kernels are a module
// (kernels/cuda/module) that cannot be opened; the message says what is missing.
const CudaApi& real_cuda();
// For tests; null: libcudart again. The table must outlive every device.
void use_cuda(const CudaApi* table);

}  // namespace coshard
