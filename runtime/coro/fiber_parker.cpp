#include "runtime/coro/fiber_parker.h"

#include <utility>

#include <coshard/runtime/error.h>

namespace coshard {

FiberParker::FiberParker(FiberThread& home, int index, std::function<void(Parker&)> body,
                         std::size_t stack_bytes)
    : home_(home), index_(index) {
  fiber_ = std::make_unique<Fiber>([this, body = std::move(body)] { body(*this); }, stack_bytes);
  FiberThread::Timers timers;
  timers.emplace(0, this);
  timer_ = timers.extract(timers.begin());
}

void FiberParker::unpark() noexcept {
  // Release: earlier writes are visible to the fiber that takes the token. Acquire: the thread's
  // uses of next_ happen before those of the waker that finds kAsleep.
  if (state_.exchange(kUnparked, std::memory_order_acq_rel) == kAsleep) home_.unparked(*this);
}

void FiberParker::park(std::int64_t deadline_ns, boost::asio::io_context* asio) {
  CS_REQUIRE(
      fiber_ != nullptr && Fiber::current() == fiber_.get(),
      "a wait in place within a handler or a spawned task, on a rank that shares its thread; "
      "co_await instead");
  CS_REQUIRE(asio == nullptr || asio == home_.io_.get(), "fiber thread: fiber ", index_,
             " parks in an io_context that is not its thread's");
  if (home_.giving_up_) Fiber::suspend();  // throws
  if (deadline_ns != 0 && deadline_ns <= now()) {
    if (asio != nullptr) home_.budget_ = 0;  // poll it before the next turn
    let_others_run();
  } else {
    fall_asleep(deadline_ns, asio != nullptr);
  }
  if (handler_error_) std::rethrow_exception(std::exchange(handler_error_, nullptr));
}

void FiberParker::let_others_run() {
  // Acquire, here and below: pairs with the unpark() whose token this takes.
  if (state_.exchange(kAwake, std::memory_order_acquire) == kUnparked) return;
  home_.runnable_.push(*this);
  Fiber::suspend();
  state_.exchange(kAwake, std::memory_order_acquire);
}

void FiberParker::fall_asleep(std::int64_t deadline_ns, bool in_asio) {
  std::uint32_t awake = kAwake;
  // Release: hands next_ to the waker that finds kAsleep. Relaxed: the exchange below acquires.
  if (state_.compare_exchange_strong(awake, kAsleep, std::memory_order_release,
                                     std::memory_order_relaxed)) {
    // This thread notices a wake-up from here on only after the fiber has suspended.
    if (deadline_ns != 0) {
      timer_.key() = deadline_ns;
      place_ = home_.timers_.insert(std::move(timer_));
      timed_ = true;
    }
    if (in_asio) ++home_.in_asio_;
    in_asio_ = in_asio;
    Fiber::suspend();
  }
  state_.exchange(kAwake, std::memory_order_acquire);
}

}  // namespace coshard
