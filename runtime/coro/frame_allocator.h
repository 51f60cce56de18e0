#pragma once
// Frame cache memory for objects created and destroyed with each operator: std::allocate_shared
// with this allocator makes no call to operator new once the thread's free lists are warm.
#include <cstddef>

#include <coshard/runtime/coro/frame_cache.h>

namespace coshard {

template <class T>
struct FrameAllocator {
  using value_type = T;
  FrameAllocator() = default;
  template <class U>
  explicit FrameAllocator(const FrameAllocator<U>&) {}
  T* allocate(std::size_t count) { return static_cast<T*>(allocate_frame(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t count) noexcept { free_frame(memory, count * sizeof(T)); }
  bool operator==(const FrameAllocator&) const = default;
};

}  // namespace coshard
