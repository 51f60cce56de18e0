#include <coshard/runtime/coro/deadline.h>

#include <array>
#include <limits>

#include <coshard/runtime/coro/executor.h>
#include "runtime/coro/deadline_passed.h"

namespace coshard {
namespace {

Executor& executor_here(const char* what) {
  Executor* executor = Executor::current();
  CS_REQUIRE(executor != nullptr, what, ": no executor runs on this thread");
  return *executor;
}

// Saturates, so that the deadline does not overflow the clock.
std::int64_t due_after(const Executor& executor, std::chrono::nanoseconds duration) {
  const std::int64_t now = executor.now();
  return duration.count() > std::numeric_limits<std::int64_t>::max() - now
             ? std::numeric_limits<std::int64_t>::max()
             : now + duration.count();
}

class Sleep final : public Suspension, public Timer {
 public:
  using awaitable_of_coshard = void;
  Sleep(Executor& executor, std::chrono::nanoseconds duration)
      : executor_(executor), due_ns_(due_after(executor, duration)) {}

  bool await_ready() const {
    branch_.throw_if_cancelled();
    return stopped_;
  }
  void await_suspend(std::coroutine_handle<> self) {
    executor_.arm(*this, due_ns_);  // may throw
    self_ = self;
    branch_.suspended = this;
  }
  void await_resume() const {
    branch_.throw_if_cancelled();
    if (stopped_) fail(ErrorKind::Cancelled, "sleep_for was cancelled: a stop was requested");
  }

  void stop() {
    stopped_ = true;
    if (self_) due();
  }
  void due() override {
    disarm();
    branch_.suspended = nullptr;
    executor_.enqueue(std::exchange(self_, {}), branch_);
  }
  void give_up() noexcept override { due(); }

 private:
  Executor& executor_;
  std::int64_t due_ns_;
  Branch& branch_ = Branch::current();
  std::coroutine_handle<> self_;  // null: not suspended
  bool stopped_ = false;
};

// A stop that arrives late from another thread finds the target cleared.
template <class Target>
std::function<void()> stop_on(Executor& executor, const std::shared_ptr<Target*>& target) {
  return [&executor, target] {
    executor.run_soon([target] {
      if (*target != nullptr) (*target)->stop();
    });
  };
}

}  // namespace

Task<void> sleep_for(std::chrono::nanoseconds duration, std::stop_token stop) {
  Executor& executor = executor_here("sleep_for");
  if (stop.stop_requested())
    fail(ErrorKind::Cancelled, "sleep_for was not started: a stop was requested");
  Sleep sleep(executor, duration);
  const auto reach = std::make_shared<Sleep*>(&sleep);
  struct Gone {
    Sleep*& reach;
    ~Gone() { reach = nullptr; }
  } const gone{*reach};
  const std::stop_callback on_stop(stop, stop_on(executor, reach));
  co_await sleep;
}

std::string to_string(std::chrono::nanoseconds duration) {
  struct Unit {
    std::int64_t ns;
    const char* name;
  };
  static constexpr std::array<Unit, 3> kUnits{
      {{1'000'000'000, "s"}, {1'000'000, "ms"}, {1'000, "us"}}};
  for (const Unit& unit : kUnits)
    if (duration.count() >= unit.ns)
      return str_cat(static_cast<double>(duration.count()) / static_cast<double>(unit.ns), ' ',
                     unit.name);
  return str_cat(duration.count(), " ns");
}

struct Deadline::State final : Timer {
  explicit State(std::string text) : what(std::move(text)) {}
  void due() override {
    passed = true;
    scope.cancel(std::make_exception_ptr(DeadlinePassed(ErrorKind::Cancelled, what)));
  }
  void stop() { scope.cancel(std::make_exception_ptr(Error(ErrorKind::Cancelled, what))); }
  std::string what;
  CancelScope scope;
  std::shared_ptr<State*> reach = std::make_shared<State*>(this);
  bool passed = false;
};

Deadline::Deadline(std::chrono::nanoseconds limit, std::string what, std::stop_token outer)
    : state_(std::make_unique<State>(
          str_cat("cancelled: ", what, " has a deadline of ", to_string(limit)))),
      what_(std::move(what)),
      limit_(limit),
      outer_(std::move(outer), stop_on(executor_here("with_deadline"), state_->reach)) {
  Executor& executor = executor_here("with_deadline");
  executor.arm(*state_, due_after(executor, limit));
}

Deadline::~Deadline() { *state_->reach = nullptr; }

std::stop_token Deadline::token() const { return state_->scope.stop_token(); }

void Deadline::check(const std::exception_ptr& ended_with) const {
  if (!state_->passed) return;
  std::string message = str_cat(what_, ": not finished after ", to_string(limit_));
  try {
    if (ended_with) std::rethrow_exception(ended_with);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Cancelled) message += str_cat("; it ended with: ", error.what());
  } catch (...) {
    message += str_cat("; it ended with: ", text_of(ended_with));
  }
  fail(ErrorKind::Timeout, message);
}

}  // namespace coshard
