#include <coshard/runtime/coro/in_order.h>

#include <string_view>

#include <coshard/runtime/coro/executor.h>

namespace coshard {

InOrderWait::InOrderWait(std::coroutine_handle<> task, TaskPromiseBase& promise, CallSite where)
    : task_(task),
      promise_(promise),
      where_(where),
      executor_(Executor::current()),
      parent_(Branch::current()) {
  CS_REQUIRE(executor_ != nullptr, "in_order: no executor runs on this thread");
}

InOrderWait::~InOrderWait() = default;

bool InOrderWait::await_ready() const {
  parent_.throw_if_cancelled();
  return false;
}

void InOrderWait::await_suspend(std::coroutine_handle<> awaiter) {
  branch_ = std::make_unique<Branch>(parent_, 0, "in_order");
  branch_->unordered = true;
  promise_.set_join(*this);
  executor_->enqueue(task_, *branch_);
  executor_->wait(*this, awaiter);
  // What has no order is not looked for, but told: these may be nested without end.
  if (parent_.unordered) unlink();
}

std::coroutine_handle<> InOrderWait::ended(TaskPromiseBase&) noexcept {
  if (given_up_ || parent_.unordered) executor_->give_up(*this);
  return std::noop_coroutine();
}

Poll InOrderWait::poll() { return task_.done() ? Poll::Done : Poll::Pending; }

void InOrderWait::give_up() noexcept {
  given_up_ = true;
  unlink();
  if (task_.done()) return executor_->give_up(*this);
  parent_.suspended = this;  // a deadline may come after another cause
  StackRoom::with_enough([this] { branch_->cancel(parent_.cancelled()); });
}

void InOrderWait::await_resume() const { parent_.throw_if_cancelled(); }

std::string InOrderWait::describe() const {
  if (!where_.known()) return "in_order";
  const std::string_view file(where_.file);
  return str_cat("in_order at ", file.substr(file.rfind('/') + 1), ':', where_.line);
}

}  // namespace coshard
