#pragma once
// What this executable asks of operator new: counted for each thread, and made to fail on request.
// Sanitizers have an operator new of their own: with them nothing is counted, and nothing fails.
#include <coshard/runtime/sanitizers.h>

namespace coshard::testing {

inline constexpr bool kCountsAllocations = !COSHARD_ASAN && !COSHARD_TSAN;

// Calls of operator new on this thread so far.
long allocations();
// The call that comes after `count` more on this thread throws std::bad_alloc, once; -1: none.
void fail_allocation_after(long count);

}  // namespace coshard::testing
