// What a FiberThread does between turns: timers, io_context, sleep.
#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <utility>

#include <coshard/runtime/error.h>
#include "runtime/coro/fiber_parker.h"
#include "runtime/coro/fiber_thread.h"

namespace coshard {

void FiberThread::look_around() {
  poll_asio();
  fire_timers();
}

// No fiber can run.
void FiberThread::rest() {
  const bool has_work = poll_asio();
  take_arrivals();
  if (runnable_.size > 0) return;
  if (virtual_time_) return rest_virtually(has_work);
  sleep(timers_.empty() ? 0 : timers_.begin()->first, has_work);
  fire_timers();
}

void FiberThread::rest_virtually(bool has_work) {
  if (!timers_.empty()) {
    virtual_now_ = std::max(virtual_now_, timers_.begin()->first);
    return fire_timers();
  }
  if (has_work) return sleep(0, true);
  if (on_stuck_ && !std::exchange(told_stuck_, true)) return on_stuck_();
  fail(ErrorKind::BadInput, str_cat("fiber thread: deadlock: ", alive_, " of ", fibers_.size(),
                                    " fibers sleep and nothing can wake them"));
}

void FiberThread::sleep(std::int64_t deadline_ns, bool in_asio) {
  try {
    sleep_.park(deadline_ns, in_asio ? io_.get() : nullptr);
  } catch (...) {
    catch_handler_error();
  }
  if (in_asio) wake_sleepers_in_asio();
}

// Wakes the fibers whose deadlines have passed, in order.
void FiberThread::fire_timers() {
  if (timers_.empty()) return;
  const std::int64_t time = now();
  for (auto next = timers_.begin(); next != timers_.end() && next->first <= time;)
    wake(*(next++)->second);
}

// Runs ready handlers; returns whether the io_context has work left.
bool FiberThread::poll_asio() {
  budget_ = kTurnsPerLook;
  bool ran = false;
  // Counts work that has arrived since it stopped itself.
  if (io_->stopped()) io_->restart();
  try {
    for (int i = 0; i < kHandlersPerLook && io_->poll_one() > 0; ++i) ran = true;
  } catch (...) {
    ran = true;
    catch_handler_error();
  }
  if (ran) wake_sleepers_in_asio();
  return !io_->stopped();  // it stops itself when out of work
}

void FiberThread::wake_sleepers_in_asio() {
  if (in_asio_ == 0) return;
  for (const auto& fiber : fibers_) {
    if (fiber->in_asio_) wake(*fiber);
  }
}

void FiberThread::catch_handler_error() {
  for (const auto& fiber : fibers_) {
    if (!fiber->in_asio_ || fiber->handler_error_) continue;
    fiber->handler_error_ = std::current_exception();
    return;
  }
  note_error();
}

}  // namespace coshard
