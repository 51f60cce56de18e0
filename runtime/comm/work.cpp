#include <coshard/runtime/comm/work.h>

#include <utility>

#include <coshard/runtime/coro/executor.h>
#include "runtime/comm/neighbours.h"
#include "runtime/coro/executor_asio.h"
#include "runtime/coro/fault_switch.h"

namespace coshard {

bool WorkAwaiter::await_ready() const {
  Branch::current().throw_if_cancelled();
  if (has(Fault::NullWorkDoesNotSuspend) && !state_ && more_.empty()) return true;
  return Executor::current() == nullptr;
}

void WorkAwaiter::await_suspend(std::coroutine_handle<> self) {
  Executor& executor = *(executor_ = Executor::current());
  Branch& branch = Branch::current();
  each([](WorkState& state) { state.issue_now(); });  // in its own branch
  if (resume_ == Resume::AsItComes) branch.unordered = true;
  // An unordered branch must not block ordered ones.
  if (branch.unordered) return executor.wait_unordered(*this, self);
  executor.wait(*this, self);
}

void WorkAwaiter::await_resume() {
  Branch::current().throw_if_cancelled();
  if (error_) std::rethrow_exception(error_);
  each([this](WorkState& state) { part_ < 0 ? state.wait() : state.wait_part(part_); });
}

void WorkAwaiter::give_up() noexcept {
  // Another branch runs, or none.
  RankContext& rank = executor_->context();
  Branch& running = rank.branch();
  rank.set_branch(branch());
  each([](WorkState& state) { state.on_wait_abandoned(); });
  rank.set_branch(running);
  executor_->give_up(*this);
}

// The first work that is not over; null: all are over.
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

void WorkAwaiter::rank_runs() {
  if (!std::exchange(begun_, false)) return;
  each([](WorkState& state) { state.end_wait(); });
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
      const std::int64_t timeout = state.timeout_ns(), not_before = state.not_before(part_);
      if (timeout <= 0 && not_before == 0) return;
      const std::int64_t now = RankContext::current().parker().now();
      if (timeout > waited_ns) next = earlier(next, now + timeout - waited_ns);
      if (not_before > now) next = earlier(next, not_before);
    });
  } catch (...) {
    error_ = std::current_exception();
  }
  return next;
}

bool WorkAwaiter::ends_in_time() const {
  bool ends = false;
  const std::int64_t now = RankContext::current().parker().now();
  each([&](WorkState& state) { ends |= state.not_before(part_) > now; });
  return ends;
}

std::string WorkAwaiter::describe() const {
  std::string text;
  each([&](WorkState& state) { text += str_cat(text.empty() ? "" : ", ", state.describe()); });
  return text.empty() ? "nothing" : text;
}

Work::Work(std::shared_ptr<WorkState> state, bool owns_memory)
    : state_(std::move(state)), owned_(owns_memory), exceptions_(std::uncaught_exceptions()) {}

void Work::finish() noexcept {
  try {
    if (std::uncaught_exceptions() > exceptions_)
      state_->poison(str_cat(state_->describe(), ": its buffers were freed by stack unwinding"));
    try {
      state_->wait();
    } catch (const MissingIsHere& error) {  // it will never complete, and its memory is freed
      state_->poison(error.what());
      state_->wait();
    }
  } catch (...) {  // its awaiter was notified, or is unwinding after the first failure
  }
}

}  // namespace coshard
