#pragma once
// sleep_for, and with_deadline, which bounds how long a task may take. Both run on the executor of
// the calling task, by its clock. A deadline cancels whatever the work is suspended in; it does not
// interrupt a task that computes without awaiting. If ranks are to continue together afterwards,
// bound something that all of them wait for, or first agree on which ranks were late: ranks' clocks
// differ.
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>

#include <coshard/runtime/coro/task.h>

#pragma GCC visibility push(default)
namespace coshard {

// Resumes after `duration`, through the queue `ready`. When `stop` is requested, on any thread:
// Error{Cancelled} at once.
Task<void> sleep_for(std::chrono::nanoseconds duration, std::stop_token stop = {});

// A timer that cancels its branch's awaits once its limit has passed; disarmed when it goes out of
// scope. Lives in the coroutine that it bounds.
class Deadline {
 public:
  // `outer` also stops what this deadline stops, without counting as a timeout.
  Deadline(std::chrono::nanoseconds limit, std::string what, std::stop_token outer);
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  std::stop_token token() const;
  // After the limit: throws Error{Timeout}, which names `what`, the limit, and the work's own error
  // if that is not Cancelled.
  void check(const std::exception_ptr& ended_with) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::string what_;
  std::chrono::nanoseconds limit_;
  std::stop_callback<std::function<void()>> outer_;
};

template <class T>
using StoppableWork = std::function<Task<T>(std::stop_token)>;

template <class T>
Task<T> run_with_deadline(std::chrono::nanoseconds limit, std::string what, StoppableWork<T> work,
                          std::stop_token outer) {
  const Deadline deadline(limit, std::move(what), std::move(outer));
  std::exception_ptr error;
  Task<T> task = work(deadline.token());
  if constexpr (std::is_void_v<T>) {
    try {
      co_await std::move(task);
    } catch (...) {
      error = std::current_exception();
    }
    deadline.check(error);
    if (error) std::rethrow_exception(error);
  } else {
    std::optional<T> value;
    try {
      value.emplace(co_await std::move(task));
    } catch (...) {
      error = std::current_exception();
    }
    deadline.check(error);
    if (error) std::rethrow_exception(error);
    co_return std::move(*value);
  }
}

// Runs work(token), a Task<T>. After `limit`, its awaits throw Error{Cancelled}, its token is asked
// to stop, and once it has ended Error{Timeout} is thrown: "<what>: not finished after 50 ms". A
// collective that it awaited completes without it; the program can continue if all ranks have given
// up the same one. A foreign awaitable (foreign.h) without a stop token cannot be cancelled: it
// is waited for half a second more, then given up. Name the result, or `work`, on the line before the co_await.
template <class Work>
auto with_deadline(std::chrono::nanoseconds limit, std::string what, Work work,
                   std::stop_token outer = {}) {
  using T = typename std::invoke_result_t<Work&, std::stop_token>::value_type;
  return run_with_deadline<T>(limit, std::move(what), StoppableWork<T>(std::move(work)),
                              std::move(outer));
}

std::string to_string(std::chrono::nanoseconds duration);  // "50 ms", "1.5 s"

}  // namespace coshard
#pragma GCC visibility pop
