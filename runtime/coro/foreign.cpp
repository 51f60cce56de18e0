#include "runtime/coro/foreign.h"

#include "runtime/coro/executor.h"

namespace coshard {

Bounce Bounce::make(Executor& executor, Branch& branch, std::coroutine_handle<> awaiter) {
  executor.enqueue_from_handler(awaiter, branch);
  co_return;
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

Bounce::~Bounce() {
  release();
  if (handle_) handle_.destroy();
}

}  // namespace coshard
