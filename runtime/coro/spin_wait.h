#pragma once
// Spins before a sleep, for about as long as a sleep and a wake-up cost. Periodically yields the
// core, since the peer may be queued behind this thread (a woken thread starts on its waker's
// core). One object per wait; one thread.
#include <sched.h>

#include <cstdint>

#include <coshard/runtime/observer.h>

namespace coshard {

class SpinWait {
 public:
  // False: time to sleep.
  bool spin() {
    if (begin_ns_ == 0) begin_ns_ = now_ns();
    if (spent_) return false;
    pause_cpu();
    if (++turns_ % kPausesPerYield != 0) return true;
    sched_yield();
    spent_ = now_ns() - begin_ns_ > kSpinNs;
    return true;
  }

 private:
  static void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
  static constexpr std::int64_t kSpinNs = 40'000;
  static constexpr int kPausesPerYield = 32;  // a pause is 10 to 60 ns
  std::int64_t begin_ns_ = 0;
  int turns_ = 0;
  bool spent_ = false;
};

}  // namespace coshard
