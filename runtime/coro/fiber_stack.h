#pragma once
// The memory of a fiber's stack: mapped when it is touched, with a page below it that nobody may
// touch. Stacks of fibers that have ended are kept for the next ones of their thread, 64 at most.
// Owned by one Fiber, on the thread that made it.
#include <cstddef>

namespace coshard {

class FiberStack {
 public:
  // Error{BadInput} when `bytes` (rounded up to pages) is under 16 KiB or more than the system has.
  explicit FiberStack(std::size_t bytes);
  ~FiberStack();
  FiberStack(const FiberStack&) = delete;
  FiberStack& operator=(const FiberStack&) = delete;

  void* top() const noexcept { return bottom_ + bytes_; }  // where it begins: stacks grow down
  void* bottom() const noexcept { return bottom_; }        // the guard page ends here
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::size_t bytes_;
  std::byte* bottom_;
};

}  // namespace coshard
