#pragma once
// A fiber: a function on its own stack, entered by its thread with resume() and left with suspend()
// from within any call. Built on Boost.Context. Owned by whoever creates it; never changes threads.
// About 50 ns for a round trip.
#include <cstddef>
#include <exception>
#include <functional>

#include <coshard/runtime/coro/stack_room.h>
#include "runtime/coro/fiber_stack.h"
#include "runtime/coro/fiber_switch.h"

namespace coshard {

class Fiber {
 public:
  // As much as a thread usually has; only touched pages exist.
  static constexpr std::size_t kStackBytes = std::size_t{8} << 20;

  // Runs nothing yet. Error{BadInput}: an empty function, or no room for the stack.
  explicit Fiber(std::function<void()> body, std::size_t stack_bytes = kStackBytes);
  // On its thread. A fiber that has begun but not ended is abandoned: its suspend() throws
  // Error{Cancelled}, as does every later one, so that its stack unwinds here; exceptions it throws
  // are dropped. A fiber suspended in a destructor, which may not throw, terminates the process.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the fiber until it suspends or ends; throws the exception that ended it. From the thread's
  // own stack, or from another fiber of the thread. Exceptions in flight or being handled stay with
  // their stack: `throw;` and uncaught_exceptions() see only those of the current fiber.
  // Error{BadInput}: it has ended, it is running, or this is not the thread of the first call.
  void resume();
  bool done() const noexcept { return state_ == State::Done; }

  // Inside a fiber: returns to whoever resumed it. Error{BadInput} if no fiber runs on this thread.
  static void suspend();
  // The fiber running on this thread, or null.
  static Fiber* current() noexcept { return current_; }

 private:
  enum class State { Fresh, Suspended, Running, Done };
  // Same layout as __cxa_eh_globals in the Itanium C++ ABI.
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
  StackPlace room_;
  State state_ = State::Fresh;
  bool given_up_ = false;
  const void* thread_ = nullptr;  // thread of the first resume(): the address of its current_
  void* context_;                 // Boost's, of whichever of the two stacks is not running
  ExceptionGlobals exceptions_;   // the fiber's, while it does not run
  std::exception_ptr error_;
  SwitchSide own_;
  SwitchSide resumer_;
};

}  // namespace coshard
