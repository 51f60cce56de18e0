#pragma once
// Awaitables from outside this library. Their resumers know nothing of ranks and branches, so they
// are given a coroutine of the library that puts the awaiter into the executor's queue `ready`;
// while one is pending, its executor is held open.
//   Resumes: on the rank's thread, whichever thread calls resume(): from another one, the rank is
//            told by a post to its executor, and a warning says so once.
//   Cancel:  an await_suspend(handle, stop_token) is given the branch's token, and is expected to
//            resume soon after a request. One without cannot be cancelled: the error is thrown once
//            it is resumed, also that of a sibling in a when_all, which waits for it. If a deadline
//            has passed (with_deadline), that is waited for at most half a second more; then the
//            awaiter is destroyed, and whoever resumes later may call resume(), which does nothing,
//            but must not touch the awaiter.
//   Fails:   Error{Timeout} of the rank where nothing else can wake it (a peer, a timer, work of its
//            io_context) for as long as WorldOptions::timeout, or the WaitLimit that holds.
//   Simulated: the same in virtual time, so at once; a simulation waits for no other thread, and a
//            resume() by one is Error{Unsupported} of the rank.
#include <atomic>
#include <coroutine>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include <coshard/runtime/coro/frame_cache.h>
#include <coshard/runtime/coro/suspension.h>
#include <coshard/runtime/coro/timer.h>

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

// The coroutine that a foreign awaitable resumes, on any thread.
class Bounce {
 public:
  // Pending -> Resumed -> Finished, by whoever resumes it; or Pending -> Dropped, by the rank: its
  // awaiter is gone, and it destroys itself when it is resumed.
  enum class State : std::uint8_t { Pending, Resumed, Finished, Dropped };
  struct promise_type {
    static void* operator new(std::size_t bytes) { return allocate_frame(bytes); }
    static void operator delete(void* memory, std::size_t bytes) noexcept {
      free_frame(memory, bytes);
    }
    Bounce get_return_object() noexcept {
      return {std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    // The last use of the frame by the resumer.
    struct Last {
      bool await_ready() const noexcept { return false; }
      void await_suspend(std::coroutine_handle<promise_type> self) const noexcept;
      void await_resume() const noexcept {}
    };
    Last final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() const { throw; }
    std::atomic<State> state{State::Pending};
  };

  std::coroutine_handle<promise_type> handle;
};

// A coroutine of a rank that is suspended in a foreign awaitable. Lives in its frame.
class ForeignWait final : public Suspension, public Timer {
 public:
  // On the running executor, which it holds open until it is resumed. Without an executor the
  // awaiter itself is resumed. `awaited`: for errors.
  ForeignWait(std::coroutine_handle<> awaiter, const std::type_info& awaited);
  ~ForeignWait();
  // What the awaitable is given.
  std::coroutine_handle<> handle() const noexcept { return handle_; }
  std::stop_token stop_token() const;
  // The awaiter runs again.
  void release() noexcept;
  // It was not resumed, but given up after a deadline.
  bool given_up() const noexcept { return given_up_; }
  std::string describe() const;  // "awaitable my::Socket in branch 0.1"

  void give_up() noexcept override;
  void due() override;

 private:
  struct Target;
  static Bounce bounce(std::shared_ptr<Target> target);
  bool drop() noexcept;
  friend class Executor;

  std::coroutine_handle<> handle_;
  std::coroutine_handle<Bounce::promise_type> bounce_;  // null without an executor
  std::shared_ptr<Target> target_;
  const std::type_info* awaited_;
  std::size_t index_ = 0;  // among those that hold the executor open
  bool held_ = false;      // it does
  bool late_ = false;      // past a deadline
  bool given_up_ = false;
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
    wait_.emplace(self, typeid(Awaiter));
    if constexpr (requires { awaiter_.await_suspend(wait_->handle(), wait_->stop_token()); })
      return awaiter_.await_suspend(wait_->handle(), wait_->stop_token());
    else
      return awaiter_.await_suspend(wait_->handle());
  }
  // The result is taken first, so that what it holds (a lock) is not lost.
  Result await_resume() {
    if (wait_) wait_->release();
    if (wait_ && wait_->given_up()) throw_if_branch_is_cancelled();
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
  std::optional<ForeignWait> wait_;
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
