#pragma once
// Device memory of one rank, from a pool of its own (cudaMemPoolCreate), so that neither what a
// rank caches nor what it waits for is another rank's. Allocations and frees are queued on the
// compute stream: what is freed there is given out again at once, split and joined as lengths vary.
// What other streams still use is kept until the compute stream has waited for them, or the host
// has seen them past it. Owned by one CudaDevice; any thread.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <coshard/runtime/device/device.h>

namespace coshard {

class CudaStream;

class CudaAllocator {
 public:
  // The device is current. Error{DeviceFailed} when it has no pools.
  CudaAllocator(int device, CudaStream& compute);
  ~CudaAllocator();
  CudaAllocator(const CudaAllocator&) = delete;
  CudaAllocator& operator=(const CudaAllocator&) = delete;

  // `label`: what the memory is for, static text. Null when there is none; any other failure is an
  // Error{DeviceFailed}.
  void* take(std::size_t bytes, std::string_view label);
  void give(void* block, std::span<const std::shared_ptr<Event>> uses) noexcept;
  // Frees what other streams still use; the compute stream waits for them.
  void settle();
  // What is free, and known to the host to be so, goes back to the device.
  void trim();
  // Error{DeviceFailed} names the request, what is in use and by what, also by captured steps, what
  // is cached, and what the device has.
  [[noreturn]] void fail_request(std::size_t bytes, std::string_view label,
                                 std::size_t of_graphs) const;
  // Of what there is and what comes: enabling peer access does not cover pools.
  void allow_access(int device);
  MemoryStats stats() const;

 private:
  struct Block {
    std::size_t bytes;
    std::string_view label;
  };
  using Blocks = std::unordered_map<void*, Block>;
  struct Pending {  // freed, and still used by other streams
    void* block;
    std::vector<std::shared_ptr<Event>> uses;
  };
  void note(void* block, std::size_t bytes, std::string_view label);
  void collect() noexcept;  // the oldest pending ones, as far as their uses are over
  void free(void* block) noexcept;
  std::size_t attribute(cudaMemPoolAttr which) const;
  std::string holders() const;

  int device_;
  CudaStream& compute_;
  cudaMemPool_t pool_ = nullptr;
  mutable std::mutex mutex_;              // all below
  Blocks blocks_;                         // in use
  std::vector<Blocks::node_type> spare_;  // of `blocks_`, so that no operator allocates
  std::deque<Pending> pending_;           // in the order of being freed
  std::size_t in_use_ = 0, peak_ = 0;
};

}  // namespace coshard
