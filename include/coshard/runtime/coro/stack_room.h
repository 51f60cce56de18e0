#pragma once
// How much stack is left. A task that is awaited runs on its awaiter's stack, so nested awaits use
// it up: each await checks that enough is left.
#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)
namespace coshard {

// A stack: its lowest address that may be used, its size, and below it what may not be touched.
struct StackPlace {
  std::uintptr_t bottom = 0;  // 0: not known
  std::size_t bytes = 0, guard = 0;
  bool fiber = false;
};

// The stack that this thread runs on, as far as the library knows it. One per thread.
class StackRoom {
 public:
  // What awaits leave free, for the functions that a task calls.
  static constexpr std::size_t kKept = std::size_t{64} << 10;

  // Error{BadInput}: less than kKept bytes are left. Nothing is known of a stack that is neither a
  // thread's nor the library's, such as a fiber of the program's.
  [[gnu::always_inline]] static void check() {
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    if (here - current_.bottom < kKept) [[unlikely]]
      fail(here);
  }
  // The calling thread's own stack, unless the stack is known already.
  static void know() {
    if (current_.bottom == 0) know_thread();
  }

  // This thread goes on on another stack; returns the one before. Must not throw.
  static StackPlace exchange(const StackPlace& now) noexcept {
    const StackPlace before = current_;
    current_ = now;
    return before;
  }
  static const StackPlace& current() noexcept { return current_; }
  // "raise WorldOptions::stack_bytes, ...": what to do about a stack that is too small.
  static const char* remedy() noexcept;

 private:
  static void know_thread();
  [[noreturn]] static void fail(std::uintptr_t here);

  inline static constinit thread_local StackPlace current_;
};

}  // namespace coshard
#pragma GCC visibility pop
