#pragma once
// Waits for what Communicator::issue returned, as a program does: suspended where the handle can be
// awaited, else after a turn of the siblings.
#include <utility>

#include <coshard/runtime/coro/executor.h>
#include <coshard/runtime/coro/task.h>

namespace coshard::testing {

template <class Work>
concept AwaitableWork = requires(Work& work) {
  work.await_ready();
}
|| requires(Work& work) { work.operator co_await(); }
|| requires(Work& work) { operator co_await(work); };

template <class Work>
Task<void> await_work(Work work) {
  if constexpr (AwaitableWork<Work>) {
    co_await work;
  } else {
    co_await yield();
    work.wait();
  }
}

}  // namespace coshard::testing
