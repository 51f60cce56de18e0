#pragma once
// A caching allocator for device memory, ordered on one compute stream: what is freed there is
// given out again at once, since the stream runs in order; what other streams use is given out once
// they are past it. Owned by one CudaDevice; any thread.
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/spin_lock.h"

namespace coshard {

class CudaAllocator {
 public:
  explicit CudaAllocator(int device) : device_(device) {}
  ~CudaAllocator();
  CudaAllocator(const CudaAllocator&) = delete;
  CudaAllocator& operator=(const CudaAllocator&) = delete;

  // `label`: what the memory is for, static text. Error{DeviceFailed} names the request, what is in
  // use and by what, what is cached, and what the device has.
  void* take(std::size_t bytes, std::string_view label);
  void give(void* block, std::span<const std::shared_ptr<Event>> uses) noexcept;
  MemoryStats stats() const;

 private:
  struct Block {
    std::size_t bytes;
    std::string_view label;
  };
  struct Pending {  // freed, and still used by other streams
    void* block;
    std::vector<std::shared_ptr<Event>> uses;
  };
  static std::size_t rounded(std::size_t bytes);
  void* take_free(std::size_t bytes);
  void collect() noexcept;         // pending ones whose uses are over become free
  void release_cached() noexcept;  // back to CUDA
  std::string holders() const;

  int device_;
  mutable SpinLock lock_;                                     // all below
  std::unordered_map<void*, Block> blocks_;                   // in use, free and pending
  std::unordered_map<std::size_t, std::vector<void*>> free_;  // by size
  std::vector<Pending> pending_;
  MemoryStats stats_;
};

}  // namespace coshard
