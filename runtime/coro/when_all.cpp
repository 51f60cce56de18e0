#include <coshard/runtime/coro/when_all.h>

#include <new>

#include <coshard/runtime/coro/branch.h>
#include "runtime/coro/fault_switch.h"

namespace coshard {
namespace {

// In the current branch. Where memory is exhausted, the failure itself.
std::exception_ptr cancelled_by(const std::exception_ptr& failure) noexcept {
  try {
    return std::make_exception_ptr(Error(
        ErrorKind::Cancelled, str_cat("cancelled: a sibling in branch ", Branch::current().path(),
                                      " failed: ", coshard::text_of(failure))));
  } catch (const std::bad_alloc&) {
    return failure;
  }
}

}  // namespace

StartAll::StartAll(std::span<const Child> children, OnFailure on_failure)
    : children_(children),
      on_failure_(on_failure),
      executor_(Executor::current()),
      parent_(Branch::current()) {}

StartAll::~StartAll() {
  if (executor_ != nullptr) executor_->settled(this);
}

bool StartAll::await_ready() {
  parent_.throw_if_cancelled();
  return children_.empty() || (executor_ == nullptr && start_here());
}

// Without an executor, each child runs on the caller's stack until it suspends.
bool StartAll::start_here() {
  for (const Child& child : children_) {
    child.handle.resume();
    if (!child.handle.done()) ++running_;
  }
  return running_ == 0;
}

void StartAll::await_suspend(std::coroutine_handle<> awaiter) {
  awaiter_ = awaiter;
  for (const Child& child : children_)
    if (!child.handle.done()) child.promise->set_join(*this);
  if (executor_ == nullptr) return;
  running_ = children_.size();
  branches_.reserve(running_);
  for (std::size_t i = 0; i < children_.size(); ++i)  // may throw
    branches_.push_back(std::make_unique<Branch>(parent_, static_cast<int>(i)));
  parent_.suspended = this;
  for (std::size_t i = 0; i < children_.size(); ++i)
    executor_->enqueue(children_[i].handle, *branches_[i]);
}

std::coroutine_handle<> StartAll::ended(TaskPromiseBase& child) noexcept {
  if (child.error() && !first_ && on_failure_ == OnFailure::CancelSiblings) {
    first_ = child.error();
    if (running_ > 1 && executor_ != nullptr && !has(Fault::SiblingsAreNotCancelled)) {
      try {
        executor_->failing(this, first_, unfinished());
      } catch (const std::bad_alloc&) {  // it is told when it leaves the program
      }
      cancel_children(cancelled_by(first_));
    }
  }
  if (--running_ > 0) return std::noop_coroutine();
  if (executor_ != nullptr) {
    parent_.suspended = nullptr;
    executor_->context().set_branch(parent_);
  }
  return awaiter_;
}

void StartAll::cancel_children(const std::exception_ptr& cause) {
  for (std::size_t i = 0; i < branches_.size(); ++i)
    if (!children_[i].handle.done()) branches_[i]->cancel(cause);
}

// The parent was cancelled: cancels its children; the parent resumes when they have ended.
// They may be nested without end.
void StartAll::give_up() noexcept {
  parent_.suspended = this;  // a deadline may come after another cause
  StackRoom::with_enough([this] { cancel_children(parent_.cancelled()); });
}

std::string StartAll::unfinished() const {
  constexpr std::size_t kNamed = 4;
  std::string text;
  std::size_t count = 0;
  for (std::size_t i = 0; i < branches_.size(); ++i) {
    if (children_[i].handle.done()) continue;
    if (++count <= kNamed)
      text += str_cat(text.empty() ? "" : ", ", "branch ", branches_[i]->path());
  }
  if (count > kNamed) text += str_cat(" and ", count - kNamed, " more");
  return text;
}

void StartAll::await_resume() const {
  if (first_) std::rethrow_exception(first_);
}

}  // namespace coshard
