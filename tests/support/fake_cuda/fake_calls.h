#pragma once
// The fake's functions for the table of CUDA calls: one file per family fills in its own.
#include <string>

#include "runtime/device/cuda/api.h"
#include "tests/support/fake_cuda/fake_driver.h"

namespace coshard::testing {

void add_copy_calls(CudaApi& api);
void add_device_calls(CudaApi& api);
void add_launch_calls(CudaApi& api);
void add_memory_calls(CudaApi& api);
void add_pool_calls(CudaApi& api);
void add_stream_calls(CudaApi& api);

namespace fake_calls {

inline FakeDriver& driver() { return FakeDriver::get(); }

// The last error of the calling thread.
cudaError_t& last_error();
// Stores an error as the last one.
cudaError_t status(int code);
// The status of a call that waited for a device; not `over`: in vain.
inline cudaError_t waited(bool over) { return status(over ? cudaSuccess : cudaErrorTimeout); }

// Counts the call; returns from the function if a fault requires it.
#define ENTER(name)                                       \
  if (const int fault = driver().enter(name); fault != 0) \
  return status(fault == FakeDriver::kSkip ? 0 : fault)

}  // namespace fake_calls
}  // namespace coshard::testing
