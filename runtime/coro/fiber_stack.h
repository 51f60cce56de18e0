#pragma once
// The memory of a fiber's stack: mapped when touched, with a guard below. Stacks of ended fibers are
// kept for later ones of the same thread, 64 at most, with little memory. Owned by one Fiber, on the
// thread that created it.
#include <cstddef>

namespace coshard {

class FiberStack {
 public:
  static constexpr std::size_t kGuard = std::size_t{64}
                                        << 10;  // bytes below it that nobody may touch

  // Error{BadInput} if `bytes` (rounded up to pages) is under 16 KiB or cannot be mapped.
  explicit FiberStack(std::size_t bytes);
  ~FiberStack();
  FiberStack(const FiberStack&) = delete;
  FiberStack& operator=(const FiberStack&) = delete;

  void* top() const noexcept { return bottom_ + bytes_; }  // where it begins: stacks grow down
  void* bottom() const noexcept { return bottom_; }        // the guard ends here
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::size_t bytes_;
  std::byte* bottom_;
};

}  // namespace coshard
