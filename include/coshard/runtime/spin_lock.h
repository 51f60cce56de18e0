#pragma once
// A lock for critical sections of a few instructions, where a contended std::mutex would cost two
// system calls. A waiter yields its core now and then, so that a preempted holder can continue. Any
// thread.
#include <sched.h>

#include <atomic>

#pragma GCC visibility push(default)
namespace coshard {

class SpinLock {
 public:
  void lock() noexcept {
    int tries = 0;
    while (locked_.exchange(true, std::memory_order_acquire)) {
      while (locked_.load(std::memory_order_relaxed))
        if (++tries % 64 == 0) sched_yield();
    }
  }
  void unlock() noexcept { locked_.store(false, std::memory_order_release); }

 private:
  // false: free; true: held. Acquire on lock, release on unlock.
  std::atomic<bool> locked_{false};
};

}  // namespace coshard
#pragma GCC visibility pop
