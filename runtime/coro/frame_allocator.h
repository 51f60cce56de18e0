#pragma once
// Memory of the frame cache for objects that come and go with each operator: std::allocate_shared
// with it asks operator new for nothing once the thread's lists are warm.
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
