#include "runtime/comm/work.h"

#include <algorithm>

#include "runtime/coro/executor.h"
#include "runtime/coro/fault_switch.h"

namespace coshard {

bool WorkAwaiter::await_ready() const {
  Branch::current().throw_if_cancelled();
  if (has(Fault::NullWorkDoesNotSuspend) && !state_ && more_.empty()) return true;
  return Executor::current() == nullptr;
}

void WorkAwaiter::await_suspend(std::coroutine_handle<> self) {
  Executor& executor = *(executor_ = Executor::current());
  if (resume_ == Resume::InOrder) return executor.wait(*this, self);
  Branch::current().unordered = true;
  executor.wait_unordered(*this, self);
}

void WorkAwaiter::await_resume() {
  Branch::current().throw_if_cancelled();
  if (error_) std::rethrow_exception(error_);
  each([this](WorkState& state) { part_ < 0 ? state.wait() : state.wait_part(part_); });
}

void WorkAwaiter::give_up() noexcept {
  each([](WorkState& state) { state.given_up(); });
  executor_->give_up(*this);
}

// The first that is not over; null: all are.
WorkState* WorkAwaiter::next_missing(Look& look) {
  WorkState* missing = nullptr;
  look = Look::Over;
  each([&](WorkState& state) {
    if (missing != nullptr) return;
    look = state.look(part_);
    if (look != Look::Over) missing = &state;
  });
  return missing;
}

Look WorkAwaiter::look() {
  if (error_) return Look::Over;
  Look look = Look::Over;
  WorkState* missing = next_missing(look);
  if (missing != nullptr && !begun_) {
    begun_ = true;
    each([](WorkState& state) { state.begin_wait(); });
  }
  return look;
}

bool WorkAwaiter::listen(Parker& parker) {
  bool rings = true;
  each([&](WorkState& state) { rings &= state.listen(parker); });
  return rings;
}

void WorkAwaiter::deaf(Parker& parker) noexcept {
  each([&](WorkState& state) { state.deaf(parker); });
}

std::int64_t WorkAwaiter::check(std::int64_t waited_ns) {
  std::int64_t next = 0;
  try {
    each([&](WorkState& state) {
      state.check(waited_ns);
      const std::int64_t timeout = state.timeout_ns();
      if (timeout <= 0) return;
      const std::int64_t due = RankContext::current().parker().now() + timeout - waited_ns;
      next = next == 0 ? due : std::min(next, due);
    });
  } catch (...) {
    error_ = std::current_exception();
  }
  return next;
}

std::string WorkAwaiter::describe() const {
  std::string text;
  each([&](WorkState& state) { text += cat(text.empty() ? "" : ", ", state.describe()); });
  return text.empty() ? "nothing" : text;
}

Work::Work(std::shared_ptr<WorkState> state, bool owns_memory)
    : state_(std::move(state)), owned_(owns_memory), exceptions_(std::uncaught_exceptions()) {}

void Work::finish() noexcept {
  try {
    if (std::uncaught_exceptions() > exceptions_)
      state_->poison(cat(state_->describe(), ": its memory goes while an exception unwinds"));
    state_->wait();
  } catch (...) {  // its awaiter was told, or is being unwound by what went wrong first
  }
}

}  // namespace coshard
