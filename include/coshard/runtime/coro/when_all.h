#pragma once
// when_all: runs several tasks concurrently on one executor, each in its own branch (branch.h). All
// start through the queue `ready`, in order; then the executor decides. It completes when all have
// ended.
//
// when_all is structured: the first child to fail cancels the others (their awaits throw
// Error{Cancelled}, Asio waits included, and they issue nothing more), and the awaiter gets its
// exception once they have ended. A world waits for that as for a peer, for WorldOptions::timeout;
// then its error names the failure and what has not ended. when_all_settled lets the others finish,
// then throws the exception of the first failed task by position.
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <coshard/runtime/coro/executor.h>
#include <coshard/runtime/coro/task.h>

#pragma GCC visibility push(default)
namespace coshard {

// A type-erased task, as a join needs it.
struct Child {
  std::coroutine_handle<> handle;
  TaskPromiseBase* promise = nullptr;

  Child() = default;
  template <class T>
  explicit Child(const Task<T>& task) {
    CS_REQUIRE(task && !task.done(), "when_all: a task is empty or has already been awaited");
    handle = task.handle();
    promise = &task.handle().promise();
  }
};

enum class OnFailure : bool { CancelSiblings, LetSiblingsEnd };

// Starts the children in order and resumes its awaiter when all have ended.
class StartAll final : public Join, public Suspension {
 public:
  using awaitable_of_coshard = void;
  StartAll(std::span<const Child> children, OnFailure on_failure);
  ~StartAll();
  bool await_ready();
  void await_suspend(std::coroutine_handle<> awaiter);
  // Throws the first error if siblings are cancelled.
  void await_resume() const;

  std::coroutine_handle<> ended(TaskPromiseBase& child) noexcept override;
  void give_up() noexcept override;
  // The children that have not ended: "branch 0, branch 2".
  std::string unfinished() const;

 private:
  void cancel_children(const std::exception_ptr& cause);
  bool start_here();

  std::span<const Child> children_;
  OnFailure on_failure_;
  Executor* executor_;
  Branch& parent_;
  std::vector<std::unique_ptr<Branch>> branches_;
  std::coroutine_handle<> awaiter_;
  std::size_t running_ = 0;
  std::exception_ptr first_;
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
template <class... Ts>
std::tuple<MonostateIfVoid<Ts>...> take_all(std::tuple<Task<Ts>...>& tasks) {
  return std::apply(
      [](Task<Ts>&... task) {
        return std::tuple<MonostateIfVoid<Ts>...>{take_or_monostate(task)...};
      },
      tasks);
}

template <class... Ts>
requires(!(std::is_void_v<Ts> &&
           ...)) Task<std::tuple<MonostateIfVoid<Ts>...>> join_all(OnFailure on_failure,
                                                                   Task<Ts>... tasks) {
  const std::array<Child, sizeof...(Ts)> children{Child(tasks)...};
  StartAll start(children, on_failure);
  std::tuple<Task<Ts>...> frames(std::move(tasks)...);  // destroyed before their branches
  co_await start;
  co_return take_all(frames);
}

template <class... Ts>
requires((std::is_void_v<Ts> && ...) && sizeof...(Ts) > 0) Task<void> join_all(OnFailure on_failure,
                                                                               Task<Ts>... tasks) {
  const std::array<Child, sizeof...(Ts)> children{Child(tasks)...};
  StartAll start(children, on_failure);
  std::tuple<Task<Ts>...> frames(std::move(tasks)...);
  co_await start;
  std::apply([](auto&... task) { (task.take(), ...); }, frames);
}

template <class T>
Task<std::vector<T>> join_all(OnFailure on_failure, std::vector<Task<T>> tasks) {
  std::vector<Child> children(tasks.begin(), tasks.end());
  StartAll start(children, on_failure);
  std::vector<Task<T>> frames = std::move(tasks);
  co_await start;
  std::vector<T> values;
  values.reserve(frames.size());
  for (Task<T>& task : frames) values.push_back(task.take());
  co_return values;
}

inline Task<void> join_all(OnFailure on_failure, std::vector<Task<void>> tasks) {
  std::vector<Child> children(tasks.begin(), tasks.end());
  StartAll start(children, on_failure);
  std::vector<Task<void>> frames = std::move(tasks);
  co_await start;
  for (Task<void>& task : frames) task.take();
}

// A tuple of the values, with std::monostate for Task<void>; void if all are Task<void>.
template <class... Ts>
requires(sizeof...(Ts) > 0) auto when_all(Task<Ts>... tasks) {
  return join_all(OnFailure::CancelSiblings, std::move(tasks)...);
}
// The values in the order of the tasks.
template <class T>
Task<std::vector<T>> when_all(std::vector<Task<T>> tasks) {
  return join_all(OnFailure::CancelSiblings, std::move(tasks));
}
inline Task<void> when_all(std::vector<Task<void>> tasks) {
  return join_all(OnFailure::CancelSiblings, std::move(tasks));
}

template <class... Ts>
requires(sizeof...(Ts) > 0) auto when_all_settled(Task<Ts>... tasks) {
  return join_all(OnFailure::LetSiblingsEnd, std::move(tasks)...);
}
template <class T>
Task<std::vector<T>> when_all_settled(std::vector<Task<T>> tasks) {
  return join_all(OnFailure::LetSiblingsEnd, std::move(tasks));
}
inline Task<void> when_all_settled(std::vector<Task<void>> tasks) {
  return join_all(OnFailure::LetSiblingsEnd, std::move(tasks));
}

}  // namespace coshard
#pragma GCC visibility pop
