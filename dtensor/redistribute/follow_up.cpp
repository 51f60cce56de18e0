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

void FollowUp::wait() {
  if (!done()) {
    if (before_) before_->wait();
    while (!follow_now()) sched_yield();  // another thread is copying
  } else if (before_) {                   // another thread has copied
    before_->dependent_awaited();
  }
  if (error_) std::rethrow_exception(error_);
}

Look FollowUp::push() {
  if (done()) return Look::Over;
  const Look before = before_ ? before_->push() : Look::Over;
  if (before != Look::Over || !failure().empty()) return before;
  while (!follow_now()) sched_yield();  // another thread is copying; it wakes nobody when done
  return Look::Over;
}

}  // namespace coshard
