#pragma once
// Faults that tests inject one at a time, to check that they are detected; see
// tests/runtime/simulation/. Compiled out of release builds.
#include <atomic>

namespace coshard {

enum class Fault : int {
  None,
  NullWorkDoesNotSuspend,
  BranchIsNotCompared,
  WaitingByCompletion,  // instead of the head first
  GivenUpIsNotCompared,
  NoWakeUpAfterAnOp,
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
