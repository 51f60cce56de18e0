#include <coshard/runtime/coro/frame_cache.h>

#include <coshard/runtime/coro/stack_room.h>

namespace coshard {

constinit thread_local FrameCache frame_cache;

namespace {

// Opens the lists of its thread, and empties and closes them when the thread ends. Frames freed
// even later (by other thread-local or static destructors) find no room and go to operator delete.
struct Janitor {
  Janitor() {
    frame_cache.room.fill(FrameCache::kKeep);
    StackRoom::know();  // tasks may be destroyed here without an executor
  }
  ~Janitor() {
    for (FrameCache::Free*& head : frame_cache.head) {
      while (head != nullptr) {
        FrameCache::Free* next = head->next;
        ::operator delete(head);
        head = next;
      }
    }
    frame_cache.room.fill(0);
  }
  Janitor(const Janitor&) = delete;
  Janitor& operator=(const Janitor&) = delete;
  void touch() const {}
};

}  // namespace

void* allocate_frame_slowly(std::size_t bytes) {
  const std::size_t size = FrameCache::size_class(bytes);
  if (size >= FrameCache::kClasses) return ::operator new(bytes);
  static thread_local const Janitor janitor;
  janitor.touch();
  return ::operator new((size + 1) * FrameCache::kStep);
}

}  // namespace coshard
