#include <coshard/runtime/coro/foreign.h>

#include <mutex>
#include <set>
#include <thread>

#include <coshard/runtime/coro/executor.h>
#include <coshard/runtime/type_name.h>
#include "runtime/coro/deadline_passed.h"
#include "runtime/warn.h"

namespace coshard {
namespace {

constexpr std::int64_t kLateNs = 500'000'000;  // for what cannot be cancelled, after a deadline

// Bounces that were dropped while pending; their handles may or may not still be resumed.
struct Dropped {
  std::mutex mutex;
  std::set<void*> frames;
};
Dropped& dropped() {
  static Dropped& all = *new Dropped;  // leaked: one may resume during static destruction
  return all;
}

// co_await: whether the coroutine goes on to its awaiter, which is still there.
struct Begins {
  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<Bounce::promise_type> self) noexcept {
    Bounce::State pending = Bounce::State::Pending;
    // Acquire: what the rank wrote before it gave the handle away. From here on until Finished, the
    // rank keeps the awaiter and the executor.
    goes = self.promise().state.compare_exchange_strong(pending, Bounce::State::Resumed,
                                                        std::memory_order_acquire);
    return false;
  }
  bool await_resume() const noexcept { return goes; }
  bool goes = false;
};

}  // namespace

// Out of line: it may destroy the frame, which the caller must not touch then.
void Bounce::promise_type::Last::await_suspend(
    std::coroutine_handle<promise_type> self) const noexcept {
  Bounce::State resumed = Bounce::State::Resumed;
  // Release: the rank that sees Finished may destroy the frame.
  if (self.promise().state.compare_exchange_strong(
          resumed, Bounce::State::Finished, std::memory_order_release, std::memory_order_acquire))
    return;
  Dropped& all = dropped();
  {
    const std::scoped_lock lock(all.mutex);
    all.frames.erase(self.address());
  }
  self.destroy();
}

// Where a bounce leads. The awaiter is used on the rank's thread only.
struct ForeignWait::Target {
  Executor& executor;
  Branch& branch;
  std::coroutine_handle<> awaiter;  // null: it has been resumed, or is gone
  const std::type_info& awaited;

  std::string text() const {
    return str_cat("awaitable ", type_name_of(awaited), " in branch ", branch.path());
  }

  void deliver() {
    if (!awaiter) return;
    branch.suspended = nullptr;
    executor.enqueue_from_handler(std::exchange(awaiter, {}), branch);
  }
};

Bounce ForeignWait::bounce(std::shared_ptr<Target> target) {
  Begins begins;
  const bool goes = co_await begins;
  if (!goes) co_return;
  if (target->executor.is_here()) {
    target->deliver();
    co_return;
  }
  warn_once(
      "co_await: an awaitable that is not the library's resumed its coroutine on another thread "
      "than the rank's; the rank goes on when its executor takes the message (post to "
      "World::executor().asio_executor() and resume there, which costs less)");
  if (target->executor.virtual_time())
    target->executor.interrupt(std::make_exception_ptr(
        Error(ErrorKind::Unsupported,
              str_cat("co_await of awaitable ", type_name_of(target->awaited),
                      ": another thread resumed it, and a simulation waits for none; resume it in "
                      "the simulated program, or let it sleep_for"))));
  target->executor.run_soon([target] { target->deliver(); });
}

ForeignWait::ForeignWait(std::coroutine_handle<> awaiter, const std::type_info& awaited)
    : handle_(awaiter), awaited_(&awaited) {
  Executor* executor = Executor::current();
  if (executor == nullptr) return;
  Branch& branch = Branch::current();
  target_ = std::make_shared<Target>(Target{*executor, branch, awaiter, awaited});
  bounce_ = bounce(target_).handle;
  handle_ = bounce_;
  executor->hold_foreign(*this);  // may throw
  held_ = true;
  branch.suspended = this;
}

std::stop_token ForeignWait::stop_token() const {
  return target_ != nullptr ? target_->branch.stop_token() : std::stop_token();
}

std::string ForeignWait::describe() const {
  return target_ != nullptr ? target_->text() : type_name_of(*awaited_);
}

void ForeignWait::release() noexcept {
  disarm();
  if (target_ == nullptr) return;
  target_->awaiter = {};
  if (target_->branch.suspended == this) target_->branch.suspended = nullptr;
  if (std::exchange(held_, false)) target_->executor.release_foreign(*this);
}

// It cannot be cancelled. Whoever has its handle may still use its awaiter, so it is waited for; but
// a deadline has to end in time.
void ForeignWait::give_up() noexcept {
  target_->branch.suspended = this;  // a deadline may come after another cause
  if (late_ || !is_past_a_deadline(target_->branch.cancelled())) return;
  late_ = true;
  target_->executor.arm(*this, target_->executor.now() + kLateNs);
}

void ForeignWait::due() {
  disarm();
  given_up_ = drop();
  if (given_up_) target_->deliver();
}

// From now on nobody resumes the awaiter; false: somebody does, or has.
bool ForeignWait::drop() noexcept {
  Dropped& all = dropped();
  const std::scoped_lock lock(all.mutex);
  Bounce::State pending = Bounce::State::Pending;
  if (!bounce_.promise().state.compare_exchange_strong(pending, Bounce::State::Dropped))
    return false;
  all.frames.insert(bounce_.address());
  return true;
}

ForeignWait::~ForeignWait() {
  if (target_ == nullptr) return;
  const bool handed_out = held_;  // else resumed, or the awaitable did without
  release();
  std::atomic<Bounce::State>& state = bounce_.promise().state;
  if (given_up_ || (handed_out && drop())) return;
  // Its resumer, on another thread, may not be done with the executor yet.
  while (state.load(std::memory_order_acquire) == Bounce::State::Resumed) std::this_thread::yield();
  bounce_.destroy();
}

void throw_if_branch_is_cancelled() { Branch::current().throw_if_cancelled(); }

}  // namespace coshard
