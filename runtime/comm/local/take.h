#pragma once
// One thread at a time takes something that it may put back. Any thread.
#include <atomic>

namespace coshard {

// free -> taken. False where it is in a third state, or another thread has it: then `wanted` is
// set, and who has it rings if it puts it back. Sequentially consistent: who puts it back, and then
// reads `wanted`, sees that; or it is seen here to be free again.
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
