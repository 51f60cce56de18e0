#pragma once
// Waits for the result of Communicator::issue, as a program would: suspends if the handle can be
// awaited, else blocks after a yield.
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
