#include <coshard/runtime/comm/work.h>

#include <utility>

#include <coshard/runtime/coro/executor.h>
#include "runtime/comm/neighbours.h"
#include "runtime/coro/executor_asio.h"
#include "runtime/coro/fault_switch.h"

namespace coshard {

namespace {

WorkState& required(const std::shared_ptr<WorkState>& inner) {
  CS_REQUIRE(inner, "a WorkState without an inner one must override poll and wait");
  return *inner;
}

}  // namespace

Poll WorkState::poll(Poller by, int part) { return required(inner_).poll(by, part); }
void WorkState::wait(int part) { required(inner_).wait(part); }
void WorkState::check(std::int64_t waited_ns) {
  if (inner_) inner_->check(waited_ns);
}
bool WorkState::subscribe(Parker& parker) { return inner_ && inner_->subscribe(parker); }
void WorkState::unsubscribe(Parker& parker) noexcept {
  if (inner_) inner_->unsubscribe(parker);
}
void WorkState::cancel(const std::string& cause) {
  if (inner_) inner_->cancel(cause);
}
void WorkState::note(WorkEvent event) {
  if (inner_) inner_->note(event);
}
WorkInfo WorkState::info(int part) const {
  WorkInfo info = inner_ ? inner_->info(part) : WorkInfo();
  info.any_thread = false;
  return info;
}
std::string WorkState::describe() const { return inner_ ? inner_->describe() : "a collective"; }
std::string WorkState::failure() const { return inner_ ? inner_->failure() : ""; }

bool WorkAwaiter::await_ready() const {
  Branch::current().throw_if_cancelled();
  if (has(Fault::NullWorkDoesNotSuspend) && !state_ && more_.empty()) return true;
  return Executor::current() == nullptr;
}

void WorkAwaiter::await_suspend(std::coroutine_handle<> self) {
  Executor& executor = *(executor_ = Executor::current());
  Branch& branch = Branch::current();
  each([](WorkState& state) { state.note(WorkEvent::Needed); });  // in its own branch
  if (resume_ == Resume::AsItComes) branch.unordered = true;
  // An unordered branch must not block ordered ones.
  if (branch.unordered) return executor.wait_unordered(*this, self);
  executor.wait(*this, self);
}

void WorkAwaiter::await_resume() {
  Branch::current().throw_if_cancelled();
  try {
    if (error_) std::rethrow_exception(error_);
    each([this](WorkState& state) { state.wait(part_); });
  } catch (...) {
    rank_runs();
    throw;
  }
}

void WorkAwaiter::give_up() noexcept {
  // Another branch runs, or none.
  RankContext& rank = executor_->context();
  Branch& running = rank.branch();
  rank.set_branch(branch());
  each([](WorkState& state) { state.note(WorkEvent::Abandoned); });
  rank.set_branch(running);
  executor_->give_up(*this);
}

// From here the rank stands still for what is not over: before it helps, which may take long.
void WorkAwaiter::begin() {
  each([this](WorkState& state) {
    if (state.poll(Poller::Look, part_) == Poll::Done) return;
    begun_ = true;
    state.note(WorkEvent::StandsStill);
  });
}

// Helps with the first work that is not over.
Poll WorkAwaiter::poll_next() {
  Poll polled = Poll::Done;
  each([&](WorkState& state) {
    if (polled == Poll::Done) polled = state.poll(Poller::Await, part_);
  });
  return polled;
}

Poll WorkAwaiter::poll() {
  if (error_) return Poll::Done;
  const bool begins = !begun_;
  if (begins) begin();
  if (!begun_) return Poll::Done;
  const Poll polled = poll_next();
  if (polled == Poll::Done && begins) rank_runs();  // others may run before its coroutine
  return polled;
}

void WorkAwaiter::rank_runs() {
  if (!std::exchange(begun_, false)) return;
  each([](WorkState& state) { state.note(WorkEvent::Runs); });
}

bool WorkAwaiter::subscribe(Parker& parker) {
  bool wakes = true;
  each([&](WorkState& state) { wakes &= state.subscribe(parker); });
  return wakes;
}

void WorkAwaiter::unsubscribe(Parker& parker) noexcept {
  each([&](WorkState& state) { state.unsubscribe(parker); });
}

std::int64_t WorkAwaiter::check(std::int64_t waited_ns) {
  std::int64_t next = 0;
  try {
    each([&](WorkState& state) {
      state.check(waited_ns);
      const WorkInfo info = state.info(part_);
      const std::int64_t timeout = info.timeout_ns, not_before = info.not_before;
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
  each([&](WorkState& state) { ends |= state.info(part_).not_before > now; });
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
      state_->cancel(str_cat(state_->describe(), ": its buffers were freed by stack unwinding"));
    try {
      state_->wait();
    } catch (const MissingIsHere& error) {  // it will never complete, and its memory is freed
      state_->cancel(error.what());
      state_->wait();
    }
  } catch (...) {  // its awaiter was notified, or is unwinding after the first failure
  }
}

}  // namespace coshard
