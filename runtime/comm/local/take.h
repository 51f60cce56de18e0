#pragma once
// Exclusive claim of an object that the claiming thread may put back. Any thread.
#include <atomic>

namespace coshard {

// free -> taken. False if it is in a third state, or another thread has it: then `wanted` is set,
// and that thread wakes if it puts it back. Sequentially consistent: either the thread that puts it
// back sees `wanted`, or this one sees it free again.
template <class State>
bool take(std::atomic<State>& state, State free, State taken, std::atomic<bool>& wanted) {
  for (State seen = free; !state.compare_exchange_strong(seen, taken); seen = free) {
    if (seen != taken) return false;
    wanted.store(true);
    if (state.load() == taken) return false;
  }
  return true;
}

}  // namespace coshard
