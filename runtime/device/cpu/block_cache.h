#pragma once
// A caching allocator for host memory. Owned by one CpuDevice; any thread may take and give back,
// since a peer that finishes a collective frees this rank's buffers. Blocks come in classes of an
// eighth of a power of two, so at most 1/8 of a block is unused, and freed blocks keep their pages.
#include <algorithm>
#include <array>
#include <cstddef>

#include <coshard/runtime/device/device.h>
#include <coshard/runtime/spin_lock.h>

namespace coshard {

class BlockCache {
 public:
  static constexpr std::size_t kAlignment = 64;  // bytes: one cache line, one AVX-512 register
  // Freed memory that is kept for reuse; above this it goes back to the system.
  static constexpr std::size_t kCacheLimit = std::size_t{4} << 30;

  BlockCache() = default;
  ~BlockCache() { release_cached(); }
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  // Null for 0 bytes. Error{DeviceFailed} names the request and the memory in use.
  void* take(std::size_t bytes);
  // `bytes` as given to take().
  void give(void* block, std::size_t bytes) noexcept;
  MemoryStats stats() const;

 private:
  static constexpr int kClasses = 8 * 48;
  struct Free {
    Free* next;
  };
  struct SizeClass {
    int index;
    std::size_t bytes;
  };
  static SizeClass size_class(std::size_t bytes);
  void release_cached() noexcept;
  void count_taken(std::size_t bytes) noexcept {  // under the lock
    stats_.in_use += bytes;
    stats_.peak = std::max(stats_.peak, stats_.in_use);
  }

  mutable SpinLock lock_;  // guards the two below
  std::array<Free*, kClasses> free_{};
  MemoryStats stats_;
};

}  // namespace coshard
