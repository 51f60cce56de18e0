#pragma once
// Faults that tests inject one at a time, to check that they are detected; see
// tests/runtime/simulation/. Compiled out of release builds.
#include <atomic>
#include <chrono>
#include <thread>

namespace coshard {

enum class Fault : int {
  None,
  NullWorkDoesNotSuspend,
  BranchIsNotCompared,
  WaitingByCompletion,  // instead of the head first
  GivenUpIsNotCompared,
  NoWakeUpAfterAnOp,
  SiblingsAreNotCancelled,
  ThreadsAreSlow,  // where another thread may end the op that they look at
};

#ifdef NDEBUG
inline constexpr bool kFaults = false;
constexpr bool has(Fault) { return false; }
#else
inline constexpr bool kFaults = true;
inline constinit std::atomic<Fault> fault{Fault::None};  // set while no rank runs
inline bool has(Fault which) { return fault.load(std::memory_order_relaxed) == which; }
#endif

inline void be_slow(int milliseconds) {
  if (has(Fault::ThreadsAreSlow))
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

}  // namespace coshard
