// The table of CUDA calls on the fake driver.
#include "tests/support/fake_cuda/fake_calls.h"

#include "tests/support/fake_cuda/fake_cublas_lt.h"
#include "tests/support/fake_cuda/fake_graphs.h"

namespace coshard::testing {
namespace fake_calls {

cudaError_t& last_error() {
  thread_local cudaError_t error = cudaSuccess;
  return error;
}

cudaError_t status(int code) {
  const auto error = static_cast<cudaError_t>(code);
  if (error != cudaSuccess) last_error() = error;
  return error;
}

}  // namespace fake_calls

void FakeDriver::install(std::uint64_t seed, int devices) {
  static const CudaApi table = [] {
    CudaApi api{};
    add_copy_calls(api);
    add_device_calls(api);
    fake_graphs::add_calls(api);
    add_launch_calls(api);
    add_memory_calls(api);
    add_pool_calls(api);
    add_stream_calls(api);
    return api;
  }();
  reseed(seed);
  devices_ = devices;
  use_cuda(&table);
  install_cublas_lt();
}

}  // namespace coshard::testing
