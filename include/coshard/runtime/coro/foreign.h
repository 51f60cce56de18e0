#pragma once
// Awaitables from outside this library. Their resumers know nothing of ranks and branches, so they
// are given a coroutine of the library that puts the awaiter into the executor's queue `ready`;
// while one is pending, its executor is held open. A foreign awaitable must be resumed on the
// executor's thread: by Executor::enqueue, or by handle.resume() in something posted to its Asio
// executor. The library cannot cancel it: if its branch is cancelled meanwhile, the error is thrown
// once it is resumed.
#include <coroutine>
#include <optional>
#include <type_traits>
#include <utility>

#include <coshard/runtime/coro/frame_cache.h>

#pragma GCC visibility push(default)
namespace coshard {

// The library's awaitables identify themselves; they handle queues and branches on their own.
template <class Awaitable>
concept AwaitableOfCoshard = requires {
  typename std::remove_cvref_t<Awaitable>::awaitable_of_coshard;
}
|| std::is_same_v<std::remove_cvref_t<Awaitable>, std::suspend_always> ||
    std::is_same_v<std::remove_cvref_t<Awaitable>, std::suspend_never>;

template <class Awaitable>
concept HasCoAwait = requires(Awaitable&& awaitable) {
  static_cast<Awaitable&&>(awaitable).operator co_await();
};

// What any coroutine could await.
template <class Awaitable>
concept HasAwaiter = HasCoAwait<Awaitable> || requires(Awaitable&& awaitable) {
  operator co_await(static_cast<Awaitable&&>(awaitable));
} || requires(std::remove_reference_t<Awaitable>& awaiter) {
  awaiter.await_ready();
  awaiter.await_resume();
};

// In place of an awaiter, for what is none: says so, and what is awaited instead. Types that are
// often taken for awaitables have a specialization of their own.
template <class T>
struct NotAwaitable {
  static_assert(!std::is_same_v<T, T>,
                "co_await: this is no awaitable; await a Task, a Work or a Redistribution");
};
// Ends the compiler's complaints about the rest of the expression.
struct AnyResult {
  template <class T>
  operator T() const;  // NOLINT: implicit
};
struct NeverAwaiter {
  bool await_ready() const;
  void await_suspend(std::coroutine_handle<>) const;
  AnyResult await_resume() const;
};

// An awaiter that stays in place: g++ 12 would copy what await_transform returns by reference.
template <class Awaiter>
class AwaiterInPlace {
 public:
  explicit AwaiterInPlace(Awaiter& awaiter) noexcept : awaiter_(&awaiter) {}
  auto await_ready() const { return awaiter_->await_ready(); }
  template <class Promise>
  auto await_suspend(std::coroutine_handle<Promise> self) const {
    return awaiter_->await_suspend(self);
  }
  decltype(auto) await_resume() const { return awaiter_->await_resume(); }

 private:
  Awaiter* awaiter_;
};

class Branch;
class Executor;

// The coroutine that a foreign awaitable resumes: queues `awaiter` in its branch.
class Bounce {
 public:
  struct promise_type {
    static void* operator new(std::size_t bytes) { return allocate_frame(bytes); }
    static void operator delete(void* memory, std::size_t bytes) noexcept {
      free_frame(memory, bytes);
    }
    Bounce get_return_object() noexcept {
      return Bounce(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    // A bounce dropped while pending is destroyed when it is resumed.
    struct Last {
      bool await_ready() const noexcept { return dropped; }
      void await_suspend(std::coroutine_handle<>) const noexcept {}
      void await_resume() const noexcept {}
      bool dropped;
    };
    Last final_suspend() const noexcept;
    void return_void() const noexcept {}
    void unhandled_exception() const { throw; }
    bool dropped = false;  // the awaiter is gone
  };

  Bounce() noexcept = default;
  Bounce(Bounce&& other) noexcept;
  Bounce& operator=(Bounce&&) = delete;
  ~Bounce();
  // On the running executor, which it holds open until it is resumed. Null without an executor:
  // then the awaiter itself is resumed.
  static Bounce to(std::coroutine_handle<> awaiter);
  std::coroutine_handle<> handle() const noexcept { return handle_; }
  // It has been resumed.
  void release() noexcept;

 private:
  explicit Bounce(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle) {}
  static Bounce make(Executor& executor, Branch& branch, std::coroutine_handle<> awaiter);

  std::coroutine_handle<promise_type> handle_;
  Executor* held_ = nullptr;  // while it is pending
};

// Throws if the branch is cancelled: before a foreign await, and after one, which itself cannot be
// cancelled.
void throw_if_branch_is_cancelled();

template <class Awaiter>
class ForeignAwaiter {
  using Result = decltype(std::declval<Awaiter&>().await_resume());

 public:
  explicit ForeignAwaiter(Awaiter&& awaiter) : awaiter_(std::forward<Awaiter>(awaiter)) {}
  bool await_ready() {
    throw_if_branch_is_cancelled();
    return awaiter_.await_ready();
  }
  template <class Promise>
  auto await_suspend(std::coroutine_handle<Promise> self) {
    bounce_.emplace(Bounce::to(self));
    const std::coroutine_handle<> resumes = bounce_->handle() ? bounce_->handle() : self;
    return awaiter_.await_suspend(resumes);
  }
  // The result is taken first, so that what it holds (a lock) is not lost.
  Result await_resume() {
    if (bounce_) bounce_->release();
    if constexpr (std::is_void_v<Result>) {
      awaiter_.await_resume();
      throw_if_branch_is_cancelled();
    } else if constexpr (std::is_reference_v<Result> || std::is_move_constructible_v<Result>) {
      Result result = awaiter_.await_resume();
      throw_if_branch_is_cancelled();
      return static_cast<Result&&>(result);
    } else {
      throw_if_branch_is_cancelled();
      return awaiter_.await_resume();
    }
  }

 private:
  Awaiter awaiter_;
  std::optional<Bounce> bounce_;
};

// The awaiter of a foreign awaitable: from its co_await operator, or itself.
template <class Awaitable>
decltype(auto) awaiter_of(Awaitable&& awaitable) {
  if constexpr (HasCoAwait<Awaitable>) {
    return static_cast<Awaitable&&>(awaitable).operator co_await();
  } else if constexpr (requires { operator co_await(static_cast<Awaitable&&>(awaitable)); }) {
    return operator co_await(static_cast<Awaitable&&>(awaitable));
  } else {
    return static_cast<Awaitable&&>(awaitable);
  }
}
template <class Awaitable>
auto make_foreign_awaiter(Awaitable&& awaitable) {
  using Awaiter = decltype(awaiter_of(static_cast<Awaitable&&>(awaitable)));
  return ForeignAwaiter<Awaiter>(awaiter_of(static_cast<Awaitable&&>(awaitable)));
}

}  // namespace coshard
#pragma GCC visibility pop
