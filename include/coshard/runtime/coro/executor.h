#pragma once
// The executor of one rank: two FIFO queues in front of a Boost.Asio io_context. `ready` holds
// coroutines that start, yield, or are resumed by timers or sockets; it is emptied first. Then the
// head of `waiting`, the coroutines suspended on a collective, is next; entries behind it wait even
// if they are already over. So the order in which coroutines resume and issue depends on the
// program's structure alone; time matters only where a task awaits an Asio operation. Used on its
// rank's thread.
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

#pragma GCC visibility push(default)
namespace coshard {

class FiberThread;
class ForeignWait;

// A doubly linked ring of waits, head first.
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
    Poll poll() override { return Poll::Pending; }
    bool subscribe(Parker&) override { return false; }
    void unsubscribe(Parker&) noexcept override {}
    std::int64_t check(std::int64_t) override { return 0; }
    std::string describe() const override { return ""; }
    using Waiting::next_;
    using Waiting::previous_;
  } end_;
};

class Executor {
 public:
  // With its own io_context, run by `run`.
  Executor();
  // On the user's context, whose threads run it: the queues are emptied by handlers posted there,
  // one at a time. `run` cannot be used; see co_spawn.h. It has its own state (RankContext), unless
  // it is `beside` an executor: then it shares that executor's state, runs between its handlers,
  // and must be constructed on that rank's thread.
  explicit Executor(const boost::asio::any_io_executor& target, Executor* beside = nullptr);
  // For a rank on a fiber of `thread`, sharing that thread's io_context with its other ranks: the
  // thread runs handlers between turns, with no rank current; what they resume is queued.
  // Constructed on that fiber; outlives the thread, whose io_context may hold handlers of its
  // tasks. In virtual time it has no Asio (see io_context).
  explicit Executor(FiberThread& thread);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // The executor running on this thread, or null.
  static Executor* current() noexcept { return RankContext::current().executor; }
  // The same, if its handlers run on `target`.
  static Executor* current_on(const boost::asio::any_io_executor& target) noexcept;

  // Runs `task` on this thread until it ends; returns its value or throws its exception. Sleeps
  // only while nothing is ready and the head of `waiting` is not over. Error{BadInput} inside a
  // running executor, and on a deadlock: nothing is ready or waiting, and the io_context has no
  // work.
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
    // In a cancelled branch it does not suspend, as no await does then.
    bool await_ready() const noexcept {
      return executor_.may_keep_running() || executor_.context_->branch().cancelled() != nullptr;
    }
    void await_suspend(std::coroutine_handle<> self) const { executor_.enqueue_yield(self); }
    void await_resume() const { executor_.context_->branch().throw_if_cancelled(); }

   private:
    Executor& executor_;
  };
  // co_await: moves to the back of `ready` and lets the front run; continues at once if nothing
  // else is ready. While something waits for a collective, at most 1,024 yields take a turn;
  // further ones wait until the head of `waiting` has been resumed, so that it cannot starve.
  YieldAwaiter yield() noexcept { return YieldAwaiter(*this); }

  // Puts a suspended coroutine at the back of `ready`, in the current branch or in `branch`. On
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
  // The same from a completion handler: the rank may be asleep, and another rank or none current.
  void enqueue_from_handler(std::coroutine_handle<> ready, Branch& branch) {
    enqueue(ready, branch);
    if (thread_ != nullptr) context_->parker().unpark();
  }
  std::size_t ready() const noexcept { return size_; }
  // Puts the suspending coroutine at the back of `waiting`.
  void wait(Waiting& entry, std::coroutine_handle<> self);
  // The same for a wait that resumes through `ready` as soon as it is over (as_it_comes).
  void wait_unordered(Waiting& entry, std::coroutine_handle<> self);
  // A wait was given up: takes it out of its queue and resumes it through `ready`.
  void give_up(Waiting& entry);
  // Branches have been cancelled: releases their held yields.
  void release_cancelled();
  // What this rank is doing, for error messages: "waits for all_reduce #3 on tp[2] at
  // train.cpp:88".
  std::string standing() const;

  // Ends the running program: every await throws `cause` from now on. If it has not ended half a
  // second later, because it waits for something that cannot be cancelled, it is abandoned. Any
  // thread.
  void interrupt(std::exception_ptr cause);
  // Runs `work` on the rank's thread between two resumptions. Any thread.
  void run_soon(std::function<void()> work);
  // `timer` is due when the rank's clock, now(), reaches due_ns.
  void arm(Timer& timer, std::int64_t due_ns) { timer.arm(timers_, due_ns); }
  std::int64_t now() const { return context_->parker().now(); }
  // A when_all that has failed and waits for its other children.
  struct Failing {
    const void* place = nullptr;  // identifies it
    std::exception_ptr error;
    std::string siblings;  // those children: "branch 0, branch 2"
    // How long the rank waits for those that are in foreign awaitables, which it cannot cancel; 0:
    // none is.
    std::int64_t foreign_ns = 0;
  };
  // Called on the rank's thread when siblings are cancelled because one has failed, and with null
  // when the last of them has ended: whoever catches the error continues.
  void on_failing(std::function<void(const Failing*)> tell) { on_failing_ = std::move(tell); }
  void failing(const void* place, const std::exception_ptr& error, std::string siblings);
  void settled(const void* place) noexcept;

  // A coroutine is suspended in a foreign awaitable, whose resumer will enqueue it.
  void hold_foreign(ForeignWait& wait);
  void release_foreign(ForeignWait& wait) noexcept;
  // How long the rank waits where only foreign awaitables can wake it: then its program ends with
  // Error{Timeout}. 0, as in the beginning: for ever. `whose`: " of rank 3", for that error.
  void set_timeout(std::int64_t ns, std::string whose) noexcept {
    timeout_ns_ = ns;
    whose_ = std::move(whose);
  }
  // Whether the calling thread is the one that runs this executor now, or a handler of it.
  bool is_here() const;
  // Of a simulation, which waits for no other thread.
  bool virtual_time() const noexcept;

  // Where Asio operations of this executor's tasks complete. io_context(): Error{Unsupported} on an
  // executor on the user's context. Both: Error{Unsupported} in a simulation, where time is
  // virtual. A thread that will post there later must hold a work guard until then, as for any
  // io_context: a rank that waits for a peer does not poll an io_context without work.
  boost::asio::io_context& io_context();
  const boost::asio::any_io_executor& asio_executor() const;
  // The same for operations that may outlive this executor: handlers they post afterwards are
  // destroyed on the posting thread. On this executor's thread only.
  const boost::asio::any_io_executor& handler_executor();
  // Marks an Asio operation of this executor's tasks as pending, which a thread shared by many
  // ranks cannot tell itself. May be destroyed on any thread, also after the executor.
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
  // done, or with the error of a deadlock. `owner` owns this executor and the root; whatever will
  // resume one of its tasks holds it through keep_alive().
  void launch(std::coroutine_handle<> root, const std::shared_ptr<void>& owner,
              std::function<void(std::exception_ptr)> finished);
  std::shared_ptr<void> keep_alive() const;
  // The same: sets the owner early, for what is started before launch().
  void belongs_to(const std::shared_ptr<void>& owner);
  // The same: forgets the root, which has been destroyed. Call after unsubscribe_all().
  void discard();
  // Registers what co_spawn started beside this executor's program: `destroy` destroys its task, if
  // `owner` is alive. On this executor's thread.
  void add_beside(std::weak_ptr<void> owner, std::function<void()> destroy);
  // The program has ended: destroys what is still running beside it.
  void destroy_beside();
  // On the user's context: calls `work` as a task would, with this executor and its state current.
  void run_here(const std::function<void()>& work);
  // The same: peers no longer wake it. Call before the tasks that wait for them are destroyed.
  void unsubscribe_all() noexcept;

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

  static constexpr int kBudget = 128;  // resumptions between two looks at Asio
  static constexpr int kMostYields = 1024;

  // False if another coroutine is ready, and once in a while so that Asio gets its turn.
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
  void rank_runs();
  void release_held();
  void drive(std::coroutine_handle<> root);
  bool turn();
  void idle();
  bool spin(Waiting& head);
  void sleep(Waiting* head, bool asio_works, std::int64_t wake_ns);
  bool operations_under_way() const noexcept {
    return operations_ != nullptr && operations_->load(std::memory_order_relaxed) > 0;
  }
  bool look_after_unordered();
  std::int64_t check(Waiting& entry, std::int64_t now);
  bool keep_looking();
  void take_turns();
  bool others_may_post() const { return !foreign_.empty() && !virtual_time(); }
  bool is_given_up(bool asio_works) const;
  std::int64_t only_foreign_until(bool asio_works);
  std::exception_ptr not_resumed() const;
  void require_asio() const;
  bool waits_for_others() const;
  std::exception_ptr waits_for_nobody() const;
  void abandon() noexcept;
  void open_mail();
  bool poll();
  void fire_timers();
  Branch& main_branch() const;  // of the root
  Parker& waker() const;        // what others wake
  void grow();
  // On the user's context
  void post_pump();  // any thread
  void pump(const std::shared_ptr<void>& keep);
  void finish(const std::exception_ptr& error);
  bool idle_on_context(const std::shared_ptr<void>& keep);
  void set_alarm(std::int64_t wake_ns);
  bool others_hold(const std::shared_ptr<void>& keep) const;
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
  std::vector<ForeignWait*> foreign_;  // pending
  std::int64_t timeout_ns_ = 0;
  std::string whose_;
  std::int64_t foreign_limit_ns_ = 0;  // the longest of those pending; 0: none
  std::int64_t foreign_since_ns_ =
      0;  // since when nothing else can wake the rank; 0: something can
  std::shared_ptr<std::atomic<int>> operations_;  // pending, on a shared thread
  FiberThread* thread_ = nullptr;                 // that this rank shares with others
  bool polled_for_head_ = false;
  bool stands_still_ = false;  // since a look at a wait that was not over; see rank_runs()
  bool needs_pump_ = false;    // on the user's context, and no pump runs
  std::uint64_t asio_polls_ = 0;
  std::vector<Failing> failing_;
  std::vector<Beside> beside_;  // spawned beside the program; some may be over
  std::function<void(const Failing*)> on_failing_;
  Timers timers_;
  std::atomic<bool> has_mail_{false};  // release / acquire: mail_ has something
  std::mutex mail_mutex_;              // guards mail_
  std::vector<std::function<void()>> mail_;
  std::exception_ptr interruption_;
  // When the root is abandoned after an interruption; 0: not interrupted.
  std::int64_t give_up_at_ns_ = 0;
  std::unique_ptr<PumpParker> pump_parker_;   // on the user's context
  std::unique_ptr<RankContext> own_context_;  // on the user's context, unless it is beside another
  std::unique_ptr<Branch> own_branch_;        // beside another
  Executor* host_ = nullptr;          // the one it is beside, which may be gone when this is over
  std::vector<Waiting*> subscribed_;  // on the user's context, until the next pump
  std::unique_ptr<Asio> asio_;
};

// co_await yield(): Executor::yield of the executor that runs the caller. Error{BadInput} if there
// is none.
inline Executor::YieldAwaiter yield() {
  Executor* executor = Executor::current();
  if (executor == nullptr) [[unlikely]]
    fail(ErrorKind::BadInput, "yield: no executor runs on this thread");
  return executor->yield();
}

// Runs `task` on the calling thread, on an executor created for it. Error{BadInput} inside a
// running executor: await the task there. If other threads post to its asio_executor(), create an
// Executor that outlives those threads instead: they may still be inside Asio's post when the task
// has ended. Operations awaited with use_task do not need this.
template <class T>
T sync_wait(Task<T> task) {
  CS_REQUIRE(Executor::current() == nullptr,
             "sync_wait: an executor already runs on this thread; co_await the task instead");
  Executor executor;
  return executor.run(std::move(task));
}

}  // namespace coshard
#pragma GCC visibility pop
