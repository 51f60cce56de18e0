// Kernels.
#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/support/fake_cuda/emulator.h"
#include "tests/support/fake_cuda/fake_calls.h"
#include "tests/support/fake_cuda/fake_pools.h"
#include "tests/support/fake_cuda/kernel_accesses.h"

namespace coshard::testing {
namespace {

using namespace fake_calls;

constexpr std::size_t kSharedBytes = 48 * 1024;   // without opt-in
constexpr std::size_t kSharedOptIn = 227 * 1024;  // compute capability 9.0
constexpr std::size_t kMaxArgumentBytes = 4096;

// CUDA programming guide: kernels with more than 48 KiB of shared memory need an explicit opt-in.
cudaError_t set_attribute(const void* function, cudaFuncAttribute which, int value) {
  ENTER("FuncSetAttribute");
  const auto bytes = static_cast<std::size_t>(value);
  if (which != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || bytes > kSharedOptIn)
    return status(cudaErrorInvalidValue);
  driver().shared_limit(FakeDriver::current_device(), function) = bytes;
  return cudaSuccess;
}

// It loads the kernel (the guide, "Lazy Loading"), as a first launch does.
cudaError_t get_attributes(cudaFuncAttributes*, const void* function) {
  ENTER("FuncGetAttributes");
  const int device = FakeDriver::current_device();
  if (driver().first_use(device, function) &&
      !driver().may_wait_for_device(device, "cudaFuncGetAttributes"))
    return status(cudaErrorTimeout);
  return cudaSuccess;
}

// The memory that a kernel's arguments point to: every word that is an address of an allocation.
// Half of a word may be padding, which may make it look like an address in a pool's wide range.
std::vector<FakeDriver::Allocation> memory_of(const std::vector<char>& kernel) {
  std::vector<FakeDriver::Allocation> found;
  for (std::size_t at = 0; at + sizeof(void*) <= kernel.size(); at += sizeof(void*)) {
    const void* word = nullptr;
    std::memcpy(&word, kernel.data() + at, sizeof word);
    const auto allocation = driver().allocation_of(word);
    if (allocation.serial != 0 && !is_free_in_a_pool(word)) found.push_back(allocation);
  }
  return found;
}

// The programming guide: kernels may use another device's memory only with peer access enabled.
void check_reach(const CudaLaunch& launch, const std::vector<FakeDriver::Allocation>& memory) {
  const int device = FakeDriver::current_device();
  for (const auto& allocation : memory)
    if (allocation.device >= 0 && !driver().reaches(device, allocation.device))
      driver().complain(std::string(launch.name) + " on cuda:" + std::to_string(device) +
                        " has memory of cuda:" + std::to_string(allocation.device) +
                        " without peer access");
}

void run(const CudaLaunch& launch, const std::vector<FakeDriver::Allocation>& memory) {
  for (const auto& allocation : memory)
    if (!driver().alive(allocation))
      return driver().complain(std::string(launch.name) + " has memory that has been freed since");
  KernelAccesses accesses(memory);
  try {
    emulate(launch, driver().draw());
  } catch (const std::exception& error) {
    driver().complain(std::string(launch.name) + ": " + error.what());
  }
  for (const auto& [begin, bytes, writes] : accesses.take())
    writes ? driver().writes(launch.name, begin, bytes) : driver().reads(launch.name, begin, bytes);
}

// The stream is of the current device (the programming guide, "Stream and Event Behavior"). The
// first launch of a kernel loads it, which may wait for the device (the guide, "Lazy Loading";
// torchcomms#2334, nvbench#136).
cudaError_t launch_kernel(const CudaLaunch& launch) {
  ENTER("Launch");
  const int device = FakeDriver::current_device();
  const std::size_t shared = std::max(kSharedBytes, driver().shared_limit(device, launch.function));
  if (launch.threads == 0 || launch.threads > 1024 || launch.blocks == 0)
    return status(cudaErrorInvalidConfiguration);
  if (launch.kernel_bytes > kMaxArgumentBytes || launch.shared_bytes > shared)
    return status(cudaErrorInvalidValue);
  if (driver().stream(launch.stream).device != device)
    return status(cudaErrorInvalidResourceHandle);
  if (driver().first_use(device, launch.function) &&
      !driver().may_wait_for_device(device,
                                    "cudaLaunchKernel of '" + std::string(launch.name) + "'"))
    return status(cudaErrorTimeout);
  CudaLaunch call = launch;
  const auto* bytes = static_cast<const char*>(launch.kernel);
  std::vector<char> kernel(bytes, bytes + launch.kernel_bytes);
  auto memory = memory_of(kernel);
  check_reach(launch, memory);
  FakeDriver::Op op;
  op.kernel = true;
  op.work = [call, held = std::move(kernel), memory = std::move(memory)]() mutable {
    call.kernel = held.data();
    run(call, memory);
  };
  driver().enqueue(driver().queue_on(launch.stream), std::move(op));
  return cudaSuccess;
}

}  // namespace

void add_launch_calls(CudaApi& api) {
  api.FuncGetAttributes = get_attributes;
  api.FuncSetAttribute = set_attribute;
  api.Launch = launch_kernel;
}

}  // namespace coshard::testing
