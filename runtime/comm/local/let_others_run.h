#pragma once
// Yields to another thread or fiber that is in the middle of a short operation.
#include <sched.h>

#include <coshard/runtime/coro/rank_context.h>

namespace coshard {

inline void let_others_run() {
  Parker& parker = RankContext::current().parker();
  if (parker.shares_its_thread()) {
    parker.park(1);
  } else {
    sched_yield();
  }
}

}  // namespace coshard
