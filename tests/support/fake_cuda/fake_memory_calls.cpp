// Device memory, and pinned host memory.
#include "tests/support/fake_cuda/fake_calls.h"
#include "tests/support/fake_cuda/fake_pools.h"

namespace coshard::testing {
namespace {

using namespace fake_calls;

// The programming guide lists it under implicit synchronization; today's drivers rarely do it
// (cupy#2898).
cudaError_t allocate_memory(void** data, std::size_t bytes) {
  ENTER("Malloc");
  if (!driver().may_wait_for_device(FakeDriver::current_device(), "cudaMalloc"))
    return status(cudaErrorTimeout);
  *data = driver().allocate(bytes, true);
  return status(*data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

// It waits for the memory's device and for those that reach it (pytorch#50925).
cudaError_t free_memory(void* data) {
  ENTER("Free");
  if (is_of_a_pool(data)) {
    driver().complain("cudaFree of a pool's memory");
    return status(cudaErrorInvalidValue);
  }
  const int home = driver().allocation_of(data).device;
  for (int device = 0; device < driver().device_count(); ++device)
    if (driver().reaches(device, home) && !driver().wait_for_device(device, "cudaFree"))
      return status(cudaErrorTimeout);
  return status(driver().release(data) ? cudaSuccess : cudaErrorInvalidValue);
}

// The programming guide, implicit synchronization: page-locked host memory.
cudaError_t host_alloc(void** data, std::size_t bytes, unsigned) {
  ENTER("HostAlloc");
  if (!driver().wait_for_device(FakeDriver::current_device(), "cudaHostAlloc"))
    return status(cudaErrorTimeout);
  *data = driver().allocate(bytes, false);
  return status(*data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

// nccl#48: it waits for kernels that wait for others.
cudaError_t free_host(void* data) {
  ENTER("FreeHost");
  if (!driver().wait_for_device(FakeDriver::current_device(), "cudaFreeHost"))
    return status(cudaErrorTimeout);
  return status(driver().release(data) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t memory_info(std::size_t* left, std::size_t* all) {
  ENTER("MemGetInfo");
  *all = driver().memory_limit();
  *left = *all - driver().memory_in_use();
  return cudaSuccess;
}

}  // namespace

void add_memory_calls(CudaApi& api) {
  api.Free = free_memory;
  api.FreeHost = free_host;
  api.HostAlloc = host_alloc;
  api.Malloc = allocate_memory;
  api.MemGetInfo = memory_info;
}

}  // namespace coshard::testing
