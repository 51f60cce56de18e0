#pragma once
// Kernel launches. A kernel is an object: its members are the arguments, its call operator the
// body, run once by every thread of every block (block.h). `launch` copies the object to the device
// and queues it. Compiled by nvcc, the body becomes a __global__ function; compiled by a host
// compiler, a function that the tests' block emulator runs thread by thread.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "runtime/device/cuda/block.h"

namespace coshard {

class CudaDevice;

// A kernel of this program. Registered before main(), so that a device loads all kernels when it is
// created: a first launch may otherwise synchronize the whole device (CUDA programming guide, "Lazy
// Loading").
struct KernelEntry {
  explicit KernelEntry(const void* function) noexcept;

  const void* function;
  // The dynamic shared memory its blocks may use, by device index: more than 48 KiB must be allowed
  // once per function (cudaFuncSetAttribute).
  std::array<std::atomic<std::size_t>, 64> shared_allowed{};
  const KernelEntry* next;
};

// Work of a higher layer that every new device does before it is used, for the same reason. An
// object of static storage duration.
struct DevicePreparation {
  explicit DevicePreparation(void (*prepare)(CudaDevice&)) noexcept;

  void (*prepare)(CudaDevice&);
  const DevicePreparation* next;
};
// The heads of the lists of both.
const KernelEntry* first_kernel() noexcept;
const DevicePreparation* first_preparation() noexcept;

// One launch of a one-dimensional grid. `function` is a __global__ function of one argument, or,
// compiled for the host, an EmulatedKernel.
struct CudaLaunch {
  const char* name = "";  // for error messages and traces
  const void* function = nullptr;
  const void* kernel = nullptr;  // the kernel object; copied by the call
  std::size_t kernel_bytes = 0;  // at most 4096
  std::uint32_t blocks = 0, threads = 0;
  std::size_t shared_bytes = 0;
  KernelEntry* entry = nullptr;
  bool uses_barriers = false;  // threads of a block cooperate: barrier, shuffle, shared memory
  void* stream = nullptr;      // cudaStream_t
};
using EmulatedKernel = void (*)(const void* kernel, Block& block);

// Queues `launch` on its stream (null: the device's compute stream) after making the device
// current. Error{DeviceFailed} names the kernel. No-op without blocks.
void launch_on(CudaDevice& device, CudaLaunch launch);

#if defined(__CUDACC__)
template <class Kernel>
__global__ void __launch_bounds__(Kernel::kMaxThreads)
    cuda_entry(const __grid_constant__ Kernel kernel) {
  Block block;
  kernel(block);
}
template <class Kernel>
const void* function_of() {
  return reinterpret_cast<const void*>(&cuda_entry<Kernel>);
}
#else
template <class Kernel>
void emulated_entry(const void* kernel, Block& block) {
  (*static_cast<const Kernel*>(kernel))(block);
}
template <class Kernel>
const void* function_of() {
  return reinterpret_cast<const void*>(static_cast<EmulatedKernel>(&emulated_entry<Kernel>));
}
#endif

// A kernel's base: the maximum threads per block, and whether they cooperate.
template <int max_threads, bool uses_barriers>
struct KernelTraits {
  static constexpr int kMaxThreads = max_threads;
  static constexpr bool kUsesBarriers = uses_barriers;
};
using PerElement = KernelTraits<256, false>;  // independent threads
using PerBlock = KernelTraits<1024, true>;    // cooperating threads

template <class Kernel>
inline KernelEntry kernel_entry{function_of<Kernel>()};

template <class Kernel>
void launch(CudaDevice& device, const char* name, const Kernel& kernel, std::int64_t blocks,
            int threads, std::size_t shared_bytes = 0, void* stream = nullptr) {
  static_assert(std::is_trivially_copyable_v<Kernel> && sizeof(Kernel) <= 4096);
  CudaLaunch call;
  call.name = name;
  call.function = function_of<Kernel>();
  call.kernel = &kernel;
  call.kernel_bytes = sizeof(Kernel);
  call.blocks = static_cast<std::uint32_t>(blocks);
  call.threads = static_cast<std::uint32_t>(threads);
  call.shared_bytes = shared_bytes;
  call.entry = &kernel_entry<Kernel>;
  call.uses_barriers = Kernel::kUsesBarriers;
  call.stream = stream;
  launch_on(device, call);
}

// The number of blocks of 256 threads for `count` elements, `each` per thread and iteration; at
// most 132 * 32, so kernels use a grid-stride loop over block.grid_threads().
inline std::int64_t blocks_for(std::int64_t count, std::int64_t each = 1) {
  const std::int64_t wanted = (count + 256 * each - 1) / (256 * each);
  return wanted < 132 * 32 ? wanted : 132 * 32;
}

template <class Kernel>
void launch_elements(CudaDevice& device, const char* name, const Kernel& kernel, std::int64_t count,
                     std::int64_t each = 1) {
  if (count > 0) launch(device, name, kernel, blocks_for(count, each), 256);
}

}  // namespace coshard
