#include <coshard/runtime/coro/foreign.h>

#include <mutex>
#include <set>

#include <coshard/runtime/coro/executor.h>

namespace coshard {
namespace {

// Bounces that were dropped while pending; their handles may or may not still be resumed.
struct Dropped {
  std::mutex mutex;
  std::set<void*> frames;
};
Dropped& dropped() {
  static Dropped& all = *new Dropped;  // leaked: one may resume during static destruction
  return all;
}

// co_await: whether the coroutine itself was dropped.
struct WasDropped {
  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<Bounce::promise_type> self) noexcept {
    was = self.promise().dropped;
    return false;
  }
  bool await_resume() const noexcept { return was; }
  bool was = false;
};

}  // namespace

Bounce::promise_type::Last Bounce::promise_type::final_suspend() const noexcept {
  if (dropped) {
    Dropped& all = coshard::dropped();
    const std::scoped_lock lock(all.mutex);
    auto& self = const_cast<promise_type&>(*this);
    all.frames.erase(std::coroutine_handle<promise_type>::from_promise(self).address());
  }
  return {dropped};
}

Bounce Bounce::make(Executor& executor, Branch& branch, std::coroutine_handle<> awaiter) {
  WasDropped asks;
  const bool gone = co_await asks;
  if (!gone) executor.enqueue_from_handler(awaiter, branch);
}

Bounce Bounce::to(std::coroutine_handle<> awaiter) {
  Executor* executor = Executor::current();
  if (executor == nullptr) return {};
  Bounce bounce = make(*executor, Branch::current(), awaiter);
  executor->hold_foreign();
  bounce.held_ = executor;
  return bounce;
}

Bounce::Bounce(Bounce&& other) noexcept
    : handle_(std::exchange(other.handle_, {})), held_(std::exchange(other.held_, nullptr)) {}

void throw_if_branch_is_cancelled() { Branch::current().throw_if_cancelled(); }

void Bounce::release() noexcept {
  if (held_ != nullptr) std::exchange(held_, nullptr)->release_foreign();
}

// A foreign holder of the handle may still resume it.
Bounce::~Bounce() {
  if (!handle_) return;
  const bool out = held_ != nullptr && !handle_.done();
  release();
  if (!out) {
    handle_.destroy();
    return;
  }
  handle_.promise().dropped = true;
  Dropped& all = dropped();
  const std::scoped_lock lock(all.mutex);
  all.frames.insert(handle_.address());
}

}  // namespace coshard
