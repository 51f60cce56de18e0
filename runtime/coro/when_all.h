#pragma once
// when_all: runs several tasks in turns on one executor. The first runs until it yields or
// suspends, then the second starts, and so on; afterwards the executor's queue decides. Ends when
// all have ended; then the exception of the first task (by position) that failed is rethrown, or
// the values are returned.
#include <array>
#include <cstddef>
#include <span>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/coro/executor.h"
#include "runtime/coro/task.h"

namespace coshard {

// A task without its type, as far as a join needs it.
struct Child {
  std::coroutine_handle<> handle;
  TaskPromiseBase* promise = nullptr;

  Child() = default;
  template <class T>
  explicit Child(const Task<T>& task) {
    CS_REQUIRE(task && !task.done(), "when_all: a task is empty or was awaited before");
    handle = task.handle();
    promise = &task.handle().promise();
  }
};

// Starts the children in order and resumes its awaiter when all have ended.
class StartAll {
 public:
  explicit StartAll(std::span<const Child> children) noexcept : children_(children) {}
  bool await_ready() {
    Executor* executor = Executor::current();
    if (executor != nullptr) executor->expect_siblings(children_.size());
    for (const Child& child : children_) {
      if (executor != nullptr) executor->sibling_starts();
      child.handle.resume();
      if (!child.handle.done()) ++join_.running;
    }
    return join_.running == 0;
  }
  void await_suspend(std::coroutine_handle<> awaiter) noexcept {
    for (const Child& child : children_)
      if (!child.handle.done()) child.promise->set_continuation(awaiter, &join_);
  }
  void await_resume() const noexcept {}

 private:
  std::span<const Child> children_;
  Join join_;
};

template <class T>
auto take_or_monostate(Task<T>& task) {
  if constexpr (std::is_void_v<T>) {
    task.take();
    return std::monostate{};
  } else {
    return task.take();
  }
}
template <class T>
using MonostateIfVoid = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

// A tuple of the values, std::monostate for a Task<void>; nothing when all are Task<void>.
template <class... Ts>
requires(!(std::is_void_v<Ts> &&
           ...)) Task<std::tuple<MonostateIfVoid<Ts>...>> when_all(Task<Ts>... tasks) {
  const std::array<Child, sizeof...(Ts)> children{Child(tasks)...};
  StartAll start(children);
  co_await start;
  co_return std::tuple<MonostateIfVoid<Ts>...>{take_or_monostate(tasks)...};
}

template <class... Ts>
requires((std::is_void_v<Ts> && ...) && sizeof...(Ts) > 0) Task<void> when_all(Task<Ts>... tasks) {
  const std::array<Child, sizeof...(Ts)> children{Child(tasks)...};
  StartAll start(children);
  co_await start;
  (tasks.take(), ...);
}

// The values in the order of the tasks.
template <class T>
Task<std::vector<T>> when_all(std::vector<Task<T>> tasks) {
  std::vector<Child> children(tasks.begin(), tasks.end());
  StartAll start(children);
  co_await start;
  std::vector<T> values;
  values.reserve(tasks.size());
  for (Task<T>& task : tasks) values.push_back(task.take());
  co_return values;
}

inline Task<void> when_all(std::vector<Task<void>> tasks) {
  std::vector<Child> children(tasks.begin(), tasks.end());
  StartAll start(children);
  co_await start;
  for (Task<void>& task : tasks) task.take();
}

}  // namespace coshard
