#pragma once
// A fiber: a function on a stack of its own, which its thread enters with resume() and which goes
// off with suspend(), in the middle of any call. Made on Boost.Context. Whoever makes it owns it;
// it never changes its thread. Some 50 ns there and back.
#include <cstddef>
#include <exception>
#include <functional>

#include <coshard/runtime/coro/frame_cache.h>
#include "runtime/coro/fiber_stack.h"
#include "runtime/coro/fiber_switch.h"

namespace coshard {

class Fiber {
 public:
  // 1 MiB, of which only the touched pages exist; sanitizers make frames larger.
  static constexpr std::size_t kStackBytes = std::size_t{kCacheFrames ? 1 : 4} << 20;

  // Runs nothing yet. Error{BadInput}: no body, or no memory for the stack.
  explicit Fiber(std::function<void()> body, std::size_t stack_bytes = kStackBytes);
  // On its thread. A body that has begun and not ended is given up: its suspend() throws
  // Error{Cancelled}, and so does every later one, so that its stack unwinds here; what it throws
  // is dropped. One that waits in a destructor, where nothing may be thrown, ends the process.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body until it suspends or ends; throws what ended it. From the thread's own stack, or
  // from another fiber of it. Exceptions in flight or in a handler stay with the stack they are on:
  // `throw;` and uncaught_exceptions() know those of the own fiber only. Error{BadInput} when it is
  // done or runs already, and on another thread than the first time.
  void resume();
  bool done() const noexcept { return state_ == State::Done; }

  // Inside a body: back to who resumed it. Error{BadInput} when no fiber runs on this thread.
  static void suspend();
  // The fiber that runs on this thread, or null.
  static Fiber* current() noexcept { return current_; }

 private:
  enum class State { Fresh, Suspended, Running, Done };
  // As the Itanium C++ ABI lays out __cxa_eh_globals.
  struct ExceptionGlobals {
    void* caught = nullptr;
    unsigned uncaught = 0;
  };
  struct Entry;

  void enter_stack() noexcept;
  void leave_stack(bool for_ever) noexcept;

  inline static constinit thread_local Fiber* current_ = nullptr;

  std::function<void()> body_;
  FiberStack stack_;
  State state_ = State::Fresh;
  bool given_up_ = false;
  const void* thread_ = nullptr;  // of the first resume(): the address of its current_
  void* context_;                 // Boost's, of whichever of the two stacks does not run
  ExceptionGlobals exceptions_;   // the fiber's, while it does not run
  std::exception_ptr error_;
  SwitchSide own_;
  SwitchSide resumer_;
};

}  // namespace coshard
