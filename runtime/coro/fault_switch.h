#pragma once
// Faults that tests bring back, one at a time, to see that they are found; see
// tests/runtime/simulation/. Nothing of it is left in a release build.
#include <atomic>

namespace coshard {

enum class Fault : int {
  None,
  NullWorkDoesNotSuspend,
  BranchIsNotCompared,
  WaitingByCompletion,  // instead of the head first
  GivenUpIsNotCompared,
  NoWakeUpAfterAJob,
  SiblingsAreNotCancelled,
};

#ifdef NDEBUG
inline constexpr bool kFaults = false;
constexpr bool has(Fault) { return false; }
#else
inline constexpr bool kFaults = true;
inline constinit std::atomic<Fault> fault{Fault::None};  // set while no rank runs
inline bool has(Fault which) { return fault.load(std::memory_order_relaxed) == which; }
#endif

}  // namespace coshard
