#pragma once
// How much stack is left. A task that is awaited runs on its awaiter's stack, so nested awaits use
// it up: each await checks that enough is left. So do tasks that are destroyed and hold others;
// these go on on another stack.
#include <cstddef>
#include <cstdint>
#include <functional>

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
  // What is left for destructors before they go on on another stack.
  static constexpr std::size_t kShort = std::size_t{48} << 10;

  // Error{BadInput}: less than kKept bytes are left. Nothing is known of a stack that is neither a
  // thread's nor the library's, such as a fiber of the program's.
  [[gnu::always_inline]] static void check() {
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    if (here - current_.bottom < kKept) [[unlikely]]
      fail(here);
  }
  [[gnu::always_inline]] static bool is_short() {
    return reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) - current_.bottom < kShort;
  }
  // Calls `work` on a stack of its own. False: there is no memory for one, and it was not called.
  static bool on_another(const std::function<void()>& work);
  // Calls `work`, on another stack if this one is short and memory allows.
  template <class Work>
  static void with_enough(const Work& work) {
    if (!is_short() || !on_another(work)) work();
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
