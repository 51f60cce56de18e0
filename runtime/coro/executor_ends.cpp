// Early end of an executor's program: interruptions, failing siblings, tasks spawned beside it.
#include <vector>

#include "runtime/coro/executor_asio.h"

namespace coshard {
namespace {

constexpr std::int64_t kGiveUpNs = 500'000'000;  // for what cannot be cancelled

}  // namespace

// Whether the root was interrupted and is no longer waited for: when nothing is left to resume it,
// or after kGiveUpNs despite timers, which then guard waits that cannot be cancelled.
bool Executor::is_given_up(bool asio_works) const {
  if (give_up_at_ns_ == 0 || waits_for_others()) return false;
  return now() >= give_up_at_ns_ || (timers_.empty() && !asio_works && foreign_ == 0);
}

// The error of a task that nothing will complete: if siblings were cancelled but cannot end, the
// error they were cancelled for.
std::exception_ptr Executor::waits_for_nobody() const {
  if (!failing_.empty()) return failing_.front().error;
  return std::make_exception_ptr(
      Error(ErrorKind::BadInput,
            "executor: deadlock: the task waits for something that nothing will complete"));
}

void Executor::add_beside(std::weak_ptr<void> owner, std::function<void()> destroy) {
  std::erase_if(beside_, [](const Beside& spawned) { return spawned.owner.expired(); });
  beside_.push_back({std::move(owner), std::move(destroy)});
}

void Executor::destroy_beside() {
  while (!beside_.empty()) {
    const Beside last = std::move(beside_.back());
    beside_.pop_back();
    if (const std::shared_ptr<void> alive = last.owner.lock()) last.destroy();
  }
}

void Executor::failing(const void* place, const std::exception_ptr& error) {
  failing_.push_back({place, error});
  if (on_failing_) on_failing_(error);
}

void Executor::settled(const void* place) noexcept {
  const auto gone = std::erase_if(failing_, [place](const Failing& f) { return f.place == place; });
  if (gone > 0 && failing_.empty() && on_failing_) on_failing_(nullptr);
}

void Executor::interrupt(std::exception_ptr cause) {
  run_soon([this, cause = std::move(cause)] {
    if (interruption_) return;
    interruption_ = cause;
    give_up_at_ns_ = now() + kGiveUpNs;
    main_branch().cancel(cause);
  });
}

}  // namespace coshard
