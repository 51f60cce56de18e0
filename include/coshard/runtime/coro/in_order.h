#pragma once
// in_order: awaits a timer or a socket (a data loader) at its position in program order.
//
//   co_await in_order(load(file))
//
// starts the task at once, through the queue `ready`, in its own branch, and puts the awaiter into
// `waiting`, so that it continues where the program's structure says, on all ranks alike, although
// the task takes a different time on each. A plain await of a timer or socket continues as soon as
// that is over, and what follows may be issued in a different order than on a peer.
//
//   Resumes: when it is the head of `waiting` and the task is done. Inside another in_order, or
//            after as_it_comes, as soon as the task is done: that branch has no order.
//   Returns: the task's value, or throws its exception.
//   Fails:   Error{BadInput} in the task if it issues a collective (send and recv are allowed), and
//            if no executor runs.
//   Cancel:  the task is cancelled and waited for; then the awaiter resumes through `ready`.
//
// Owns the task; lives in the awaiting coroutine, on the executor's thread.
#include <coroutine>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <coshard/runtime/call_site.h>
#include <coshard/runtime/coro/branch.h>
#include <coshard/runtime/coro/task.h>

#pragma GCC visibility push(default)
namespace coshard {

class Executor;

// The part that does not depend on the task's type.
class InOrderWait final : public Join, public Waiting {
 public:
  using awaitable_of_coshard = void;
  InOrderWait(std::coroutine_handle<> task, TaskPromiseBase& promise, CallSite where);
  ~InOrderWait();

  bool await_ready() const;
  void await_suspend(std::coroutine_handle<> awaiter);
  void await_resume() const;

  std::coroutine_handle<> ended(TaskPromiseBase& child) noexcept override;
  void give_up() noexcept override;
  Poll poll() override;
  bool subscribe(Parker&) override { return true; }  // what ends the task runs on this executor
  void unsubscribe(Parker&) noexcept override {}
  std::int64_t check(std::int64_t) override { return 0; }
  std::string describe() const override;
  bool ends_elsewhere() const override { return false; }

 private:
  std::coroutine_handle<> task_;
  TaskPromiseBase& promise_;
  CallSite where_;
  Executor* executor_;
  Branch& parent_;
  std::unique_ptr<Branch> branch_;  // the task's; null: not started
  bool given_up_ = false;
};

template <class T>
class [[nodiscard]] InOrder {
 public:
  using awaitable_of_coshard = void;
  InOrder(Task<T> task, CallSite where) : task_(std::move(task)), where_(where) {
    CS_REQUIRE(task_ && !task_.done(), "in_order: the task is empty or has already been awaited");
  }

  class Awaiter {
   public:
    Awaiter(Task<T>&& task, CallSite where)
        : wait_(task.handle(), task.handle().promise(), where), task_(std::move(task)) {}
    bool await_ready() const { return wait_.await_ready(); }
    void await_suspend(std::coroutine_handle<> awaiter) { wait_.await_suspend(awaiter); }
    T await_resume() {
      wait_.await_resume();
      return task_.take();
    }

   private:
    InOrderWait wait_;  // outlives task_: has the branch of its frame's scopes
    Task<T> task_;
  };
  Awaiter operator co_await() && { return Awaiter(std::move(task_), where_); }

 private:
  Task<T> task_;
  CallSite where_;
};

template <class T>
InOrder<T> in_order(Task<T> task, CallSite where = CallSite::current()) {
  return InOrder<T>(std::move(task), where);
}

}  // namespace coshard
#pragma GCC visibility pop
