#pragma once
// Task<T>: a lazy coroutine that starts when it is awaited and runs on its awaiter's thread.
// Move-only; the Task owns the frame: dropping one that has not started, or is suspended, destroys
// its locals. Not thread-safe: everything that resumes a task goes through its Executor
// (executor.h).
//   Limit: a task starts on its awaiter's stack, like a call. Recursion by co_await takes about 130
//          bytes of stack per level: 60,000 levels fit into 8 MiB. An await that leaves less than
//          64 KiB is Error{BadInput}. The number of successive awaits is not limited, nor how many
//          tasks hold one another: their destruction takes further stacks as needed.
#include <concepts>
#include <coroutine>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include <coshard/runtime/coro/foreign.h>
#include <coshard/runtime/coro/frame_cache.h>
#include <coshard/runtime/coro/stack_room.h>
#include <coshard/runtime/error.h>

#pragma GCC visibility push(default)
namespace coshard {

template <class T>
class Task;

// Error{BadInput}: an empty task was awaited. Out of line, to keep awaiting small.
[[noreturn]] void fail_empty_task();
// On another stack: this one is short. Without memory for one, the frame is left as it is.
void destroy_with_room(std::coroutine_handle<> frame) noexcept;
// The same for a coroutine that goes on. Returns what is to be resumed here: it, without memory.
std::coroutine_handle<> resume_with_room(std::coroutine_handle<> coroutine) noexcept;

class TaskPromiseBase;

// Where the children of a when_all join (when_all.h).
class Join {
 public:
  // A child has ended, normally or with an exception. Returns what runs next.
  virtual std::coroutine_handle<> ended(TaskPromiseBase& child) noexcept = 0;

 protected:
  ~Join() = default;
};

// Notified of the exception that a task ends with, before its awaiter is: a module, whose path
// errors name. Outlives the task. Rank's thread.
class ErrorObserver {
 public:
  virtual void on_exception(const std::exception_ptr& error) noexcept = 0;

 protected:
  ~ErrorObserver() = default;
};

class TaskPromiseBase {
 public:
  static void* operator new(std::size_t bytes) { return allocate_frame(bytes); }
  static void operator delete(void* memory, std::size_t bytes) noexcept {
    free_frame(memory, bytes);
  }

  // On completion a task resumes its awaiter. If it completes in its first run, inside await_ready,
  // there is no continuation yet and it returns to its caller. A joined child leaves this to the
  // join.
  struct FinalAwaiter {
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) const noexcept {
      TaskPromiseBase& promise = self.promise();
      if (promise.join_ != nullptr) return next(promise.join_->ended(promise));
      return promise.continuation_ ? next(promise.continuation_) : std::noop_coroutine();
    }
    void await_resume() const noexcept {}

   private:
    // Below -O2 g++ resumes by a call, and nested tasks end on a growing stack.
    static std::coroutine_handle<> next(std::coroutine_handle<> awaiter) noexcept {
      if (StackRoom::is_short()) [[unlikely]]
        return resume_with_room(awaiter);
      return awaiter;
    }
  };

  std::suspend_always initial_suspend() const noexcept { return {}; }
  FinalAwaiter final_suspend() const noexcept { return {}; }
  void unhandled_exception() noexcept {
    error_ = std::current_exception();
    if (witness_ != nullptr) witness_->on_exception(error_);
  }
  void set_witness(ErrorObserver& witness) noexcept { witness_ = &witness; }
  void set_continuation(std::coroutine_handle<> awaiter) noexcept { continuation_ = awaiter; }
  void set_join(Join& join) noexcept { join_ = &join; }
  const std::exception_ptr& error() const noexcept { return error_; }

  // A foreign awaitable holds the executor open until it is resumed (foreign.h).
  template <class Awaitable>
  decltype(auto) await_transform(Awaitable&& awaitable) const {
    if constexpr (AwaitableOfCoshard<Awaitable> && HasCoAwait<Awaitable>) {
      return static_cast<Awaitable&&>(awaitable);
    } else if constexpr (!HasAwaiter<Awaitable>) {
      static_assert(sizeof(NotAwaitable<std::remove_cvref_t<Awaitable>>) > 0);
      return NeverAwaiter();
    } else if constexpr (AwaitableOfCoshard<Awaitable>) {
      return AwaiterInPlace<std::remove_reference_t<Awaitable>>(awaitable);
    } else {
      return make_foreign_awaiter(static_cast<Awaitable&&>(awaitable));
    }
  }

 protected:
  void rethrow() const {
    if (error_) [[unlikely]]
      std::rethrow_exception(error_);
  }

 private:
  std::coroutine_handle<> continuation_;
  Join* join_ = nullptr;
  ErrorObserver* witness_ = nullptr;
  std::exception_ptr error_;
};

template <class T>
class TaskPromise final : public TaskPromiseBase {
 public:
  Task<T> get_return_object() noexcept;
  template <std::convertible_to<T> U = T>
  void return_value(U&& value) {
    value_.emplace(std::forward<U>(value));
  }
  T take() {
    rethrow();
    return std::move(*value_);
  }

 private:
  std::optional<T> value_;
};

template <>
class TaskPromise<void> final : public TaskPromiseBase {
 public:
  Task<void> get_return_object() noexcept;
  void return_void() const noexcept {}
  void take() const { rethrow(); }
};

template <class T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = TaskPromise<T>;
  using value_type = T;
  using Handle = std::coroutine_handle<promise_type>;

  using awaitable_of_coshard = void;

  Task() noexcept = default;
  explicit Task(Handle handle) noexcept : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (!handle_) return;
    if (StackRoom::is_short()) [[unlikely]]
      destroy_with_room(handle_);
    else
      handle_.destroy();
  }

  explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
  bool done() const noexcept { return handle_ && handle_.done(); }

  // For executors and joins: the frame, still owned by this Task, and the result once done.
  Handle handle() const noexcept { return handle_; }
  // Who is notified of the exception that it ends with; set before it starts.
  void set_witness(ErrorObserver& witness) const noexcept {
    if (handle_) handle_.promise().set_witness(witness);
  }
  T take() { return handle_.promise().take(); }

  // The awaiter takes over the frame and destroys it at the end of the co_await expression.
  class Awaiter {
   public:
    explicit Awaiter(Task&& task) noexcept : task_(std::move(task)) {}
    // Runs the task here, on the caller's stack. If it ends without suspending, the awaiter does
    // not suspend either, so a loop over such tasks costs no more than a loop over calls and no
    // stack.
    bool await_ready() {
      if (!task_.handle_) [[unlikely]]
        fail_empty_task();
      StackRoom::check();
      task_.handle_.resume();
      return task_.handle_.done();
    }
    void await_suspend(std::coroutine_handle<> awaiter) noexcept {
      task_.handle_.promise().set_continuation(awaiter);
    }
    T await_resume() { return task_.take(); }

   private:
    Task task_;
  };
  Awaiter operator co_await() && noexcept { return Awaiter(std::move(*this)); }

 private:
  Handle handle_;
};

template <class T>
struct NotAwaitable<Task<T>> {
  static_assert(!std::is_same_v<T, T>,
                "co_await: a Task is awaited once, and given away: co_await std::move(task)");
};

template <class T>
Task<T> TaskPromise<T>::get_return_object() noexcept {
  return Task<T>(std::coroutine_handle<TaskPromise<T>>::from_promise(*this));
}
inline Task<void> TaskPromise<void>::get_return_object() noexcept {
  return Task<void>(std::coroutine_handle<TaskPromise<void>>::from_promise(*this));
}

}  // namespace coshard
#pragma GCC visibility pop
