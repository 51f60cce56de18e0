#pragma once
// The executor of one rank: two first-in-first-out queues in front of a Boost.Asio io_context.
// `ready` holds first turns, yields, and what time or sockets resumed; it is emptied first. Then
// the head of `waiting`, the coroutines that are suspended on a collective, is next, and nothing
// behind it, however much of that is over. So the order in which a program's coroutines resume, and
// issue, is decided by its structure alone; time enters only where a task awaits an Asio operation.
// Used on its rank's thread.
#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/coro/task.h>
#include <coshard/runtime/coro/timer.h>

namespace boost::asio {
class any_io_executor;
class io_context;
}  // namespace boost::asio

namespace coshard {

class FiberThread;

// A ring of waits, the head first.
class WaitingQueue {
 public:
  WaitingQueue() noexcept { end_.next_ = end_.previous_ = &end_; }
  ~WaitingQueue() { clear(); }
  WaitingQueue(const WaitingQueue&) = delete;
  WaitingQueue& operator=(const WaitingQueue&) = delete;
  bool empty() const noexcept { return end_.next_ == &end_; }
  Waiting* front() const noexcept { return empty() ? nullptr : end_.next_; }
  Waiting* after(const Waiting& entry) const noexcept {
    return entry.next_ == &end_ ? nullptr : entry.next_;
  }
  void push_back(Waiting& entry) noexcept {
    entry.next_ = &end_;
    entry.previous_ = end_.previous_;
    end_.previous_->next_ = &entry;
    end_.previous_ = &entry;
  }
  void push_front(Waiting& entry) noexcept {
    entry.previous_ = &end_;
    entry.next_ = end_.next_;
    end_.next_->previous_ = &entry;
    end_.next_ = &entry;
  }
  void clear() noexcept {
    while (!empty()) end_.next_->unlink();
  }

 private:
  struct End final : Waiting {
    ~End() { next_ = nullptr; }
    void give_up() noexcept override {}
    Look look() override { return Look::Stuck; }
    bool listen(Parker&) override { return false; }
    void deaf(Parker&) noexcept override {}
    std::int64_t check(std::int64_t) override { return 0; }
    std::string describe() const override { return ""; }
    using Waiting::next_;
    using Waiting::previous_;
  } end_;
};

class Executor {
 public:
  // With an io_context of its own, run by `run`.
  Executor();
  // On the user's context, whose threads do the running: the queues are emptied by handlers that
  // are posted there, one at a time. `run` is not for this kind; see co_spawn.h. It has a state of
  // its own (RankContext), unless it lies `beside` an executor, whose state it shares and with
  // whose handlers it takes turns; then it is made on that rank's thread.
  explicit Executor(const boost::asio::any_io_executor& target, Executor* beside = nullptr);
  // For a rank on a fiber of `thread`, whose io_context it shares with the other ranks there: the
  // thread runs the handlers, between turns and with no rank current; what they resume is queued.
  // Made on that fiber; outlives the thread, whose io_context may hold handlers of its tasks. In
  // virtual time it has no Asio (see io_context).
  explicit Executor(FiberThread& thread);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // The executor that is running on this thread, or null.
  static Executor* current() noexcept { return RankContext::current().executor; }
  // The same, if `target` is where its handlers run.
  static Executor* current_on(const boost::asio::any_io_executor& target) noexcept;

  // Runs `task` on this thread until it ends; returns its value or throws its exception. Sleeps
  // only while nothing is ready and the head of `waiting` is not over. Error{BadInput} inside a
  // running executor, and when the task waits for something that nobody will complete (nothing is
  // ready or waiting, and the io_context has no work).
  template <class T>
  T run(Task<T> task) {
    CS_REQUIRE(task, "Executor::run: the task is empty");
    drive(task.handle());
    return task.take();
  }

  class YieldAwaiter {
   public:
    using awaitable_of_coshard = void;
    explicit YieldAwaiter(Executor& executor) noexcept : executor_(executor) {}
    // Where the branch is cancelled it does not suspend, as nothing else does then.
    bool await_ready() const noexcept {
      return executor_.may_keep_running() || executor_.context_->branch().cancelled() != nullptr;
    }
    void await_suspend(std::coroutine_handle<> self) const { executor_.enqueue_yield(self); }
    void await_resume() const { executor_.context_->branch().throw_if_cancelled(); }

   private:
    Executor& executor_;
  };
  // co_await: goes to the back of `ready` and lets the front run; goes on at once when nothing else
  // is ready. While something waits for a collective, 1,024 turns of yields pass at most; then the
  // others wait until that head has been resumed, so that it cannot be starved.
  YieldAwaiter yield() noexcept { return YieldAwaiter(*this); }

  // Puts a suspended coroutine at the back of `ready`, in the branch that runs or in `branch`. On
  // this executor's thread only.
  void enqueue(std::coroutine_handle<> ready) { enqueue(ready, context_->branch()); }
  void enqueue(std::coroutine_handle<> ready, Branch& branch) {
    if (size_ == ring_.size()) [[unlikely]]
      grow();
    ring_[(head_ + size_) & (ring_.size() - 1)] = {ready, &branch};
    ++size_;
    if (needs_pump_) [[unlikely]]
      post_pump();
  }
  // The same from a completion handler: the rank may sleep, and another or none be current.
  void enqueue_from_handler(std::coroutine_handle<> ready, Branch& branch) {
    enqueue(ready, branch);
    if (thread_ != nullptr) context_->parker().ring();
  }
  std::size_t ready() const noexcept { return size_; }
  // Puts the coroutine that is being suspended at the back of `waiting`.
  void wait(Waiting& entry, std::coroutine_handle<> self);
  // The same for a wait that resumes through `ready` as soon as it is over (as_it_comes).
  void wait_unordered(Waiting& entry, std::coroutine_handle<> self);
  // A wait that was given up: out of its queue, and resumed through `ready`.
  void give_up(Waiting& entry);
  // Branches have been cancelled: their yields are held no longer.
  void release_cancelled();
  // "waits for all_reduce #3 on tp[2] at train.cpp:88": where this rank stands, for error messages.
  std::string standing() const;

  // Ends the running program: every await throws `cause` from now on. What has not ended half a
  // second later because it waits for something that cannot be cancelled is given up. Any thread.
  void interrupt(std::exception_ptr cause);
  // Runs `work` on the rank's thread, between two resumptions. Any thread.
  void run_soon(std::function<void()> work);
  // `timer` is due when the rank's clock, now(), has come to due_ns.
  void arm(Timer& timer, std::int64_t due_ns) { timer.arm(timers_, due_ns); }
  std::int64_t now() const { return context_->parker().now(); }
  // Called on the rank's thread when siblings are cancelled because one has failed, with its error,
  // and with null when the last of those have ended: who catches it goes on.
  void on_failing(std::function<void(const std::exception_ptr&)> tell) {
    on_failing_ = std::move(tell);
  }
  // A when_all has failed and waits for its other children; `place` identifies it.
  void failing(const void* place, const std::exception_ptr& error);
  void settled(const void* place) noexcept;

  // A coroutine is suspended in an awaitable that is not of this library: somebody will enqueue it.
  void hold_foreign() noexcept { ++foreign_; }
  void release_foreign() noexcept { --foreign_; }

  // Where Asio operations of this executor's tasks complete. io_context(): Error{Unsupported} on
  // an executor that lives on the user's context. Both: Error{Unsupported} in a simulation, where
  // time does not pass. A thread that is to post there later keeps a work guard of it meanwhile, as
  // for any io_context: a rank that waits for a peer does not look at one that has no work.
  boost::asio::io_context& io_context();
  const boost::asio::any_io_executor& asio_executor() const;
  // The same for operations that may end when this executor is gone: what they want run then is
  // destroyed, on the thread that wants it. On this executor's thread only.
  const boost::asio::any_io_executor& handler_executor();
  // An Asio operation of this executor's tasks is under way, as a thread that many ranks share
  // cannot tell by itself. It may be over on any thread, also when the executor is gone.
  class Operation {
   public:
    explicit Operation(Executor& executor) noexcept : count_(executor.operations_) {
      if (count_ != nullptr) count_->fetch_add(1, std::memory_order_relaxed);
    }
    Operation(Operation&& other) noexcept = default;
    Operation& operator=(Operation&&) = delete;
    ~Operation() {
      if (count_ != nullptr) count_->fetch_sub(1, std::memory_order_relaxed);
    }

   private:
    std::shared_ptr<std::atomic<int>> count_;
  };
  // How often the io_context was polled or slept in.
  std::uint64_t asio_polls() const noexcept { return asio_polls_; }

  // On the user's context: starts `root`. `finished` is called there once: with null when root is
  // done, or with the error when it waits for something that nobody will complete. `owner` owns
  // this executor and the root; whatever will resume one of its tasks holds it through
  // keep_alive().
  void launch(std::coroutine_handle<> root, const std::shared_ptr<void>& owner,
              std::function<void(std::exception_ptr)> finished);
  std::shared_ptr<void> keep_alive() const;
  // The same: who will own it, for what is started before launch().
  void belongs_to(const std::shared_ptr<void>& owner);
  // The same: forgets the root, which has been destroyed. After stop_listening().
  void discard();
  // What is spawned beside the program of this executor, by co_spawn: `destroy` destroys its task,
  // if `owner` is alive. On this executor's thread.
  void add_beside(std::weak_ptr<void> owner, std::function<void()> destroy);
  // The program has ended: destroys what was spawned beside it and has not.
  void destroy_beside();
  // On the user's context: calls `work` as if a task did, with this executor and its state the
  // current ones.
  void run_here(const std::function<void()>& work);
  // The same: peers ring no more. Before the tasks are destroyed that wait for them.
  void stop_listening() noexcept;

  RankContext& context() const noexcept { return *context_; }

 private:
  struct Asio;
  class Running;
  class PumpParker;
  struct Entry {
    std::coroutine_handle<> coroutine;
    Branch* branch;
  };
  struct Beside {
    std::weak_ptr<void> owner;
    std::function<void()> destroy;
  };
  struct Failing {
    const void* place;
    std::exception_ptr error;
  };

  static constexpr int kBudget = 128;  // resumptions between two looks at Asio
  static constexpr int kMostYields = 1024;

  // False when somebody else is ready, and once in a while so that Asio gets its turn.
  bool may_keep_running() noexcept {
    return size_ == 0 && --budget_ > 0 && (waiting_.empty() || ++yields_ < kMostYields);
  }
  void enqueue_yield(std::coroutine_handle<> self) {
    if (!waiting_.empty() && ++yields_ >= kMostYields) [[unlikely]]
      held_.push_back({self, &context_->branch()});
    else
      enqueue(self);
  }
  void resume_front() {
    const Entry front = ring_[head_];
    head_ = (head_ + 1) & (ring_.size() - 1);
    --size_;
    --budget_;
    context_->set_branch(*front.branch);
    front.coroutine.resume();
  }
  void resume_head();
  void first_over_to_front();
  void release_held();
  void drive(std::coroutine_handle<> root);
  bool turn();
  void idle();
  bool spin(Waiting& head);
  void sleep(Waiting* head, bool asio_works);
  bool operations_under_way() const noexcept {
    return operations_ != nullptr && operations_->load(std::memory_order_relaxed) > 0;
  }
  bool look_after_unordered();
  void take_turns();
  bool is_given_up(bool asio_works) const;
  void require_asio() const;
  bool waits_for_others() const;
  std::exception_ptr waits_for_nobody() const;
  void abandon() noexcept;
  void open_mail();
  bool poll();
  void fire_timers();
  Branch& main_branch() const;  // of the root
  Parker& bell() const;         // what others ring
  void grow();
  // executor_pump.cpp; on the user's context
  void post_pump();  // any thread
  void pump(const std::shared_ptr<void>& keep);
  void finish(const std::exception_ptr& error);
  bool rest();
  void set_alarm(std::int64_t wake_ns);
  std::exception_ptr hopeless(const std::shared_ptr<void>& keep) const;

  RankContext* context_ = nullptr;
  std::vector<Entry> ring_;  // size: a power of two
  std::size_t head_ = 0;
  std::size_t size_ = 0;
  WaitingQueue waiting_;
  WaitingQueue unordered_;
  std::vector<Entry> held_;  // yields past the limit
  int yields_ = 0;           // since the last head was resumed
  int budget_ = kBudget;
  int foreign_ = 0;
  std::shared_ptr<std::atomic<int>> operations_;  // under way, on a shared thread
  FiberThread* thread_ = nullptr;                 // that this rank shares with others
  bool polled_for_head_ = false;
  bool needs_pump_ = false;  // on the user's context, and no pump runs
  std::uint64_t asio_polls_ = 0;
  std::vector<Failing> failing_;
  std::vector<Beside> beside_;  // what was spawned beside the program; some of it over
  std::function<void(const std::exception_ptr&)> on_failing_;
  Timers timers_;
  std::atomic<bool> has_mail_{false};  // release / acquire: mail_ has something
  std::mutex mail_mutex_;              // the one below
  std::vector<std::function<void()>> mail_;
  std::exception_ptr interruption_;
  std::int64_t give_up_at_ns_ = 0;            // the root, after an interruption; 0: none came
  std::unique_ptr<PumpParker> pump_parker_;   // on the user's context
  std::unique_ptr<RankContext> own_context_;  // on the user's context, unless it is beside another
  std::unique_ptr<Branch> own_branch_;        // beside another
  Executor* host_ = nullptr;     // beside that one, which may be gone when this is over
  std::vector<Waiting*> heard_;  // on the user's context, until the next pump
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
// executor, where the task is to be awaited. Where other threads post to its asio_executor() make
// an Executor that outlives those threads: they may still be leaving Asio's post when the task has
// ended. Operations awaited with use_task need no such care.
template <class T>
T sync_wait(Task<T> task) {
  CS_REQUIRE(Executor::current() == nullptr,
             "sync_wait: an executor runs on this thread already; co_await the task instead");
  Executor executor;
  return executor.run(std::move(task));
}

}  // namespace coshard
