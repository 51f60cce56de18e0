#pragma once
// Options of a CUDA device: its index, stream and memory. Names no CUDA type. Only builds with CUDA
// define make_cuda_device.
#include <cstddef>
#include <functional>
#include <memory>

#include <coshard/runtime/device/device.h>

#pragma GCC visibility push(default)
namespace coshard {

// What the caller provides; all of it optional.
struct CudaOptions {
  int index = 0;
  void* compute_stream = nullptr;  // cudaStream_t; the caller keeps it alive
  // Device memory ordered on the compute stream, in place of the device's pool; both or neither.
  // allocate returns null when out of memory.
  std::function<void*(std::size_t bytes, void* stream)> allocate;
  std::function<void(void* data, std::size_t bytes, void* stream)> deallocate;
  // Fills each allocation with NaN bytes on the compute stream: exposes reads of memory that was
  // never written, or freed too early.
  bool poison = false;
  // f32 matmuls on tensor cores, which read 10 bits of each fraction (TF32).
  bool tf32 = false;
};

// Loads all kernels and cuBLASLt, so that nothing in a step waits for the whole device.
// Error{DeviceFailed}: no driver, no device, no device with this index; the message says what to
// do.
std::shared_ptr<Device> make_cuda_device(CudaOptions options);

}  // namespace coshard
#pragma GCC visibility pop
