#pragma once
// Device memory of one rank, from a pool of its own (cudaMemPoolCreate), so that ranks share
// neither cached memory nor waits. Allocations and frees are queued on the compute stream: memory
// freed there can be reused at once, split and coalesced as sizes vary. Memory that other streams
// still use is kept until the compute stream has waited for those uses, or the host has seen them
// complete. Owned by one CudaDevice; any thread.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <deque>
#include <map>
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

  // `label`: what the memory is for, static text. Null when out of memory or `bytes` is 0; any
  // other failure is an Error{DeviceFailed}.
  void* take(std::size_t bytes, std::string_view label);
  void give(void* block, std::span<const std::shared_ptr<Event>> uses) noexcept;
  // Frees blocks that other streams still use, after making the compute stream wait for those uses.
  void settle();
  // Returns to the device the free memory that the host knows to be free.
  void trim();
  // Error{DeviceFailed} names the request, the memory in use by label and by captured steps, the
  // cached memory, and the device's free and total memory.
  [[noreturn]] void fail_request(std::size_t bytes, std::string_view label,
                                 std::size_t of_graphs) const;
  // Applies to existing and future allocations: enabling peer access does not cover pools.
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
    std::vector<std::shared_ptr<Event>> uses;  // those that are not known to be complete
  };
  void note(void* block, std::size_t bytes, std::string_view label);
  void wait_for(Pending freed);
  // Frees pending blocks whose uses are complete; queries one incomplete event per stream.
  void collect() noexcept;
  void free(void* block) noexcept;
  std::size_t attribute(cudaMemPoolAttr which) const;
  std::string holders() const;

  int device_;
  CudaStream& compute_;
  cudaMemPool_t pool_ = nullptr;
  mutable std::mutex mutex_;              // guards all below
  Blocks blocks_;                         // in use
  std::vector<Blocks::node_type> spare_;  // nodes of `blocks_`, so that no operator allocates
  // By the stream of the last of their uses, in the order they were freed: a stream that is slow
  // does not hold back what others use.
  std::map<const void*, std::deque<Pending>> pending_;
  std::size_t in_use_ = 0, peak_ = 0;
};

}  // namespace coshard
