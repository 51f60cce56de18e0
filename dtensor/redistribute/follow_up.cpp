#include "dtensor/redistribute/follow_up.h"

#include <sched.h>

namespace coshard {

// False while another thread is running it.
bool FollowUp::follow_now() {
  State expected = State::Todo;
  if (state_.compare_exchange_strong(expected, State::Doing)) {
    try {
      std::exchange(follow_, nullptr)();
    } catch (...) {
      error_ = std::current_exception();
    }
    state_.store(State::Done, std::memory_order_release);
  }
  return done();
}

void FollowUp::wait(int) {
  if (!done()) {
    if (inner()) WorkState::wait();
    while (!follow_now()) sched_yield();  // another thread is copying
  } else {                                // another thread has copied
    WorkState::note(WorkEvent::DependentAwaited);
  }
  if (error_) std::rethrow_exception(error_);
}

Poll FollowUp::poll(Poller by, int) {
  if (done()) return Poll::Done;
  if (by == Poller::AnyThread) return poll_any_thread();
  const Poll before = inner() ? WorkState::poll(by) : Poll::Done;
  if (by == Poller::Query && before == Poll::Done) wait(kAll);
  return before;
}

Poll FollowUp::poll_any_thread() {
  const Poll before = inner() ? WorkState::poll(Poller::AnyThread) : Poll::Done;
  if (before != Poll::Done || !failure().empty()) return before;
  while (!follow_now()) sched_yield();  // another thread is copying; it wakes nobody when done
  return Poll::Done;
}

WorkInfo FollowUp::info(int) const {
  if (inner() == nullptr) return {.any_thread = true};
  WorkInfo info = inner()->info();
  if (done()) info.not_before = 0;
  return info;
}

}  // namespace coshard
