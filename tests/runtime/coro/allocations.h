#pragma once
// What this executable asks of operator new: counted for each thread, and made to fail on request.

namespace coshard::test {

// Calls of operator new on this thread so far.
long allocations();
// The call that comes after `count` more on this thread throws std::bad_alloc, once; -1: none.
void fail_allocation_after(long count);

}  // namespace coshard::test
