#pragma once
// The executor of one thread: a first-in first-out queue of ready coroutines in front of a
// Boost.Asio io_context. The queue alone decides what runs next (architecture C2), so two runs of
// the same program have the same order; time enters only where a task awaits an Asio operation. One
// per rank, used on its thread.
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/coro/task.h"

namespace boost::asio {
class any_io_executor;
class io_context;
}  // namespace boost::asio

namespace coshard {

class Executor {
 public:
  // With an io_context of its own, run by `run`.
  Executor();
  // On the user's context, whose threads do the running: the queue is emptied by handlers that are
  // posted there, one at a time. `run` is not for this kind; see co_spawn in asio.h.
  explicit Executor(const boost::asio::any_io_executor& target);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // The executor that is running on this thread, or null.
  static Executor* current() noexcept { return current_; }

  // Runs `task` on this thread until it ends; returns its value or throws its exception. Blocks
  // only while nothing is ready. Error{BadInput} inside a running executor, and when the task waits
  // for something that nobody will complete (nothing is ready and the io_context has no work).
  template <class T>
  T run(Task<T> task) {
    CS_REQUIRE(task, "Executor::run: the task is empty");
    drive(task.handle());
    return task.take();
  }

  class YieldAwaiter {
   public:
    explicit YieldAwaiter(Executor& executor) noexcept : executor_(executor) {}
    bool await_ready() const noexcept { return executor_.may_keep_running(); }
    void await_suspend(std::coroutine_handle<> self) const { executor_.enqueue(self); }
    void await_resume() const noexcept {}

   private:
    Executor& executor_;
  };
  // co_await: goes to the back of the queue and lets the front run; goes on at once when nothing
  // else is ready.
  YieldAwaiter yield() noexcept { return YieldAwaiter(*this); }

  // Puts a suspended coroutine at the back of the queue. On this executor's thread only.
  void enqueue(std::coroutine_handle<> ready) {
    if (size_ == ring_.size()) [[unlikely]]
      grow();
    ring_[(head_ + size_) & (ring_.size() - 1)] = ready;
    ++size_;
    if (needs_pump_) [[unlikely]]
      post_pump();
  }
  std::size_t ready() const noexcept { return size_; }

  // Children of a when_all that wait for their first turn; while there are any, a yield gives way
  // to them.
  void expect_siblings(std::size_t count) noexcept { siblings_ += count; }
  void sibling_starts() noexcept { --siblings_; }

  // Where Asio operations of this executor's tasks complete. io_context(): Error{Unsupported} on
  // an executor that lives on the user's context.
  boost::asio::io_context& io_context();
  const boost::asio::any_io_executor& asio_executor() const noexcept;

  // For co_spawn, on the user's context: starts `root`. `finished` is called there once: with null
  // when root is done, or with the error when it waits for something that nobody will complete.
  // `owner` owns this executor and the root; whatever will resume one of its tasks holds it through
  // keep_alive().
  void launch(std::coroutine_handle<> root, const std::shared_ptr<void>& owner,
              std::function<void(std::exception_ptr)> finished);
  std::shared_ptr<void> keep_alive() const;

 private:
  struct Asio;

  // False when somebody else is ready, and once in a while so that Asio gets its turn.
  bool may_keep_running() noexcept { return size_ == 0 && siblings_ == 0 && --budget_ > 0; }
  void resume_front() {
    std::coroutine_handle<> front = ring_[head_];
    head_ = (head_ + 1) & (ring_.size() - 1);
    --size_;
    --budget_;
    front.resume();
  }
  void drive(std::coroutine_handle<> root);
  void poll_asio();
  void wait_for_asio();
  void pump(const std::shared_ptr<void>& keep);
  void post_pump();
  void grow();

  static constexpr int kBudget = 128;  // resumptions between two looks at Asio
  inline static constinit thread_local Executor* current_ = nullptr;

  std::vector<std::coroutine_handle<>> ring_;  // size: a power of two
  std::size_t head_ = 0;
  std::size_t size_ = 0;
  std::size_t siblings_ = 0;
  int budget_ = kBudget;
  bool needs_pump_ = false;  // on the user's context, and no pump is posted or running
  std::unique_ptr<Asio> asio_;
};

// co_await yield(): Executor::yield of the executor that runs the caller. Error{BadInput} when
// there is none.
inline Executor::YieldAwaiter yield() {
  Executor* executor = Executor::current();
  if (executor == nullptr) [[unlikely]]
    fail(ErrorKind::BadInput, "yield: no executor runs on this thread");
  return executor->yield();
}

// Runs `task` on the calling thread, on an executor made for it. Error{BadInput} inside a running
// executor, where the task is to be awaited. For a task that awaits operations of other threads'
// contexts make an Executor that outlives those threads: they may still be leaving Asio's post when
// the task has ended.
template <class T>
T sync_wait(Task<T> task) {
  CS_REQUIRE(Executor::current() == nullptr,
             "sync_wait: an executor runs on this thread already; co_await the task instead");
  Executor executor;
  return executor.run(std::move(task));
}

}  // namespace coshard
