#pragma once
// A CUDA device as a caller asks for one: of which index, with which stream and memory. Names no
// CUDA type. The library has these in builds with CUDA.
#include <cstddef>
#include <functional>
#include <memory>

#include <coshard/runtime/device/device.h>

#pragma GCC visibility push(default)
namespace coshard {

// What a caller brings along; all of it optional.
struct CudaOptions {
  int index = 0;
  void* compute_stream = nullptr;  // cudaStream_t; the caller keeps it alive
  // Device memory ordered on the compute stream, in place of the device's pool; both or neither.
  // allocate returns null when there is none.
  std::function<void*(std::size_t bytes, void* stream)> allocate;
  std::function<void(void* data, std::size_t bytes, void* stream)> deallocate;
  // Fills each allocation with NaN bytes on the compute stream: finds reads of memory that nothing
  // wrote, and of memory that was given back too early.
  bool poison = false;
  // Products of f32 matrices by tensor cores, which read 10 bits of each fraction.
  bool tf32 = false;
};

// Loads all kernels and cuBLASLt, so that nothing in a step waits for the whole device.
// Error{DeviceFailed}: no driver, no device, an index that is none of the devices; the text says
// what to do.
std::shared_ptr<Device> make_cuda_device(CudaOptions options);

}  // namespace coshard
#pragma GCC visibility pop
