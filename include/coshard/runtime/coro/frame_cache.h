#pragma once
// Memory for coroutine frames: free lists by size, one set per thread, no locks. A frame may be
// freed on a thread other than the one that allocated it; it then joins the freeing thread's lists,
// which keep at most kKeep frames per size. Under sanitizers every frame comes from operator new,
// so that they see each one.
#include <array>
#include <cstddef>
#include <cstdint>
#include <new>

#include <coshard/runtime/sanitizers.h>

#pragma GCC visibility push(default)
namespace coshard {

// Sanitizers have to see each frame allocated and freed.
inline constexpr bool kCacheFrames = !COSHARD_ASAN && !COSHARD_TSAN;

struct FrameCache {
  static constexpr std::size_t kStep = 64;     // bytes between two sizes
  static constexpr std::size_t kClasses = 16;  // frames up to 1 KiB are kept
  static constexpr std::uint8_t kKeep = 64;    // frames per size
  struct Free {
    Free* next;
  };
  std::array<Free*, kClasses> head{};
  // How many more may be kept; 0 before use and at thread exit.
  std::array<std::uint8_t, kClasses> room{};

  static std::size_t size_class(std::size_t bytes) { return (bytes - 1) / kStep; }
};
extern constinit thread_local FrameCache frame_cache;

void* allocate_frame_slowly(std::size_t bytes);

inline void* allocate_frame(std::size_t bytes) {
  if constexpr (!kCacheFrames) return ::operator new(bytes);
  const std::size_t size = FrameCache::size_class(bytes);
  if (size < FrameCache::kClasses) {
    FrameCache& cache = frame_cache;
    if (FrameCache::Free* frame = cache.head[size]) {
      cache.head[size] = frame->next;
      ++cache.room[size];
      return frame;
    }
  }
  return allocate_frame_slowly(bytes);
}

inline void free_frame(void* memory, std::size_t bytes) noexcept {
  const std::size_t size = FrameCache::size_class(bytes);
  if (kCacheFrames && size < FrameCache::kClasses) {
    FrameCache& cache = frame_cache;
    if (cache.room[size] > 0) {
      --cache.room[size];
      cache.head[size] = new (memory) FrameCache::Free{cache.head[size]};
      return;
    }
  }
  ::operator delete(memory);
}

}  // namespace coshard
#pragma GCC visibility pop
