#include "runtime/coro/fiber_thread.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <boost/asio/io_context.hpp>

#include <coshard/runtime/error.h>
#include "runtime/coro/fiber_parker.h"

namespace coshard {
void FiberThread::Line::push(FiberParker& fiber) noexcept {
  fiber.next_ = nullptr;
  (first == nullptr ? first : last->next_) = &fiber;
  last = &fiber;
  ++size;
}

FiberParker& FiberThread::Line::take(std::size_t index) noexcept {
  FiberParker* before = nullptr;
  FiberParker* fiber = first;
  for (; index > 0; --index) before = std::exchange(fiber, fiber->next_);
  (before == nullptr ? first : before->next_) = fiber->next_;
  if (fiber == last) last = before;
  --size;
  return *fiber;
}

FiberThread::FiberThread(FiberPolicy* policy, std::size_t stack_bytes)
    : policy_(policy),
      virtual_time_(policy != nullptr && policy->virtual_time()),
      stack_bytes_(stack_bytes),
      io_(std::make_unique<boost::asio::io_context>(1)) {}

FiberThread::~FiberThread() {
  give_up();    // bodies that never began may hold timers of the io_context
  io_.reset();  // handlers that never ran may wake
}

Parker& FiberThread::spawn(std::function<void(Parker&)> body) {
  CS_REQUIRE(body, "fiber thread: the function of a fiber is empty");
  const auto index = static_cast<int>(fibers_.size());
  fibers_.push_back(std::make_unique<FiberParker>(*this, index, std::move(body), stack_bytes_));
  ++alive_;
  runnable_.push(*fibers_.back());
  return *fibers_.back();
}

void FiberThread::run() {
  CS_REQUIRE(here_ == nullptr, "fiber thread: run called inside a fiber thread on the same thread");
  here_ = this;
  told_stuck_ = false;
  before_fibers();
  try {
    run_all();
  } catch (...) {
    note_error();
    give_up();
  }
  here_ = nullptr;
  // Wakers of the last sleepers may still be inside unparked(). Acquire: they are done with this
  // object. They registered in wakers_ before those fibers could wake and end.
  while (wakers_.load(std::memory_order_acquire) != 0) std::this_thread::yield();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void FiberThread::run_all() {
  while (alive_ > 0) {
    if (budget_-- <= 0) look_around();
    take_arrivals();
    if (FiberParker* fiber = next()) {
      turn(*fiber);
    } else {
      idle();
    }
  }
}

FiberParker* FiberThread::next() {
  if (runnable_.size == 0) return nullptr;
  const std::size_t index = policy_ != nullptr ? policy_->pick(runnable_.size) : 0;
  CS_REQUIRE(index < runnable_.size, "fiber thread: the policy picked ", index, " of ",
             runnable_.size, " runnable fibers");
  return &runnable_.take(index);
}

void FiberThread::turn(FiberParker& fiber) {
  announce(fiber.index_);
  try {
    fiber.fiber_->resume();
  } catch (...) {
    note_error();
  }
  if (fiber.fiber_->done()) {
    fiber.fiber_.reset();
    --alive_;
  }
  announce(-1);
  if (virtual_time_) virtual_now_ += policy_->turn_ns();
}

void FiberThread::announce(int fiber) noexcept {
  if (on_switch_) on_switch_(fiber);
}

void FiberThread::note_error() noexcept {
  if (!error_) error_ = std::current_exception();
}

// Abandons all fibers, as if they had ended.
void FiberThread::give_up() noexcept {
  FiberThread* const before = std::exchange(here_, this);
  giving_up_ = true;
  for (std::size_t i = 0; i < fibers_.size(); ++i) {  // a body may spawn while it unwinds
    FiberParker& fiber = *fibers_[i];
    if (fiber.fiber_ == nullptr) continue;
    remove_timer(fiber);
    fiber.state_.store(FiberParker::kAwake, std::memory_order_relaxed);
    announce(fiber.index_);
    fiber.fiber_.reset();
    announce(-1);
  }
  take_arrivals();
  runnable_ = {};
  alive_ = 0;
  giving_up_ = false;
  here_ = before;
}

void FiberThread::unparked(FiberParker& fiber) noexcept {
  if (here_ == this) {
    take_arrivals();  // they were woken first
    remove_timer(fiber);
    runnable_.push(fiber);
    return;
  }
  // Relaxed: the release below makes it visible to the thread before the fiber can wake.
  wakers_.fetch_add(1, std::memory_order_relaxed);
  FiberParker* head = arrivals_.load(std::memory_order_relaxed);
  do {
    fiber.next_ = head;
    // Release: publishes next_ and all that unpark() released.
  } while (!arrivals_.compare_exchange_weak(head, &fiber, std::memory_order_release,
                                            std::memory_order_relaxed));
  if (head == nullptr) sleep_.unpark();  // otherwise the thread that found it empty does
  // Release: this object is not touched afterwards.
  wakers_.fetch_sub(1, std::memory_order_release);
}

void FiberThread::take_arrivals() noexcept {
  // Relaxed: an arrival missed here is followed by a wake-up of sleep_.
  if (arrivals_.load(std::memory_order_relaxed) == nullptr) return;
  // Acquire: pairs with the push in unparked().
  FiberParker* last = arrivals_.exchange(nullptr, std::memory_order_acquire);
  FiberParker* first = nullptr;
  while (last != nullptr) {  // newest first: reverse
    FiberParker* const before = std::exchange(last->next_, first);
    first = std::exchange(last, before);
  }
  while (first != nullptr) {
    FiberParker& fiber = *std::exchange(first, first->next_);
    remove_timer(fiber);
    if (fiber.fiber_ != nullptr) runnable_.push(fiber);
  }
}

void FiberThread::wake(FiberParker& fiber) noexcept {
  std::uint32_t asleep = FiberParker::kAsleep;
  // Relaxed: this thread put it to sleep. On failure a wake-up came first: the fiber is in the
  // arrivals, or about to be.
  if (!fiber.state_.compare_exchange_strong(asleep, FiberParker::kAwake, std::memory_order_relaxed))
    return;
  remove_timer(fiber);
  runnable_.push(fiber);
}

void FiberThread::remove_timer(FiberParker& fiber) noexcept {
  if (std::exchange(fiber.timed_, false)) fiber.timer_ = timers_.extract(fiber.place_);
  if (std::exchange(fiber.in_asio_, false)) --in_asio_;
}

void FiberThread::look_around() {
  poll_asio();
  fire_timers();
}

// No fiber can run.
void FiberThread::idle() {
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
