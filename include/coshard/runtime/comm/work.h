#pragma once
// Work: the handle of an issued collective. Awaiting it is the only way a coroutine suspends for a
// peer. Rank's thread.
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <coshard/runtime/coro/suspension.h>

#pragma GCC visibility push(default)
namespace coshard {

class Executor;

// Who polls a work, and so when it is Done.
enum class Poller : std::uint8_t {
  Await,      // its rank, which would block: once wait() no longer blocks the host
  Look,       // the same, before it stands still: does no share of the transfer
  Query,      // its rank, which goes on: once it is complete, on the device too, or has failed
  AnyThread,  // for work that depends on it, if info().any_thread: once the data are there or lost
};

// What its rank does to a work beside polling it and waiting for it.
enum class WorkEvent : std::uint8_t {
  Needed,            // issue it, if that was deferred
  StandsStill,       // the rank has nothing else to do from now on: see Waiting
  Runs,              // it has again
  Abandoned,         // the rank has given up its await
  HasDependent,      // other work depends on it: also wake those that wait for the dependent
  DependentAwaited,  // work that depended on it was awaited: if it is over, observers are told so
};

struct WorkInfo {
  bool waits_for_peers = true;  // wait() may block the host for a peer
  bool any_thread = false;      // false: only its own rank can tell when it is over
  std::int64_t timeout_ns = 0;  // of a wait; 0: none
  // The time, by the rank's clock, before which the work (or its part) cannot complete; nothing
  // wakes it then. May change until the next wake-up. 0: something will wake it.
  std::int64_t not_before = 0;
};

// The shared state behind a Work; one per issued collective and rank. One that holds another, which
// it relays, overrides what differs; any_thread is true of it only if it says so itself. Rank's
// thread; where any_thread is true, poll(AnyThread), info().not_before and failure() on any thread.
// A `part` is one rank's shard of an all_gather; kAll: all. Without parts, a part is all.
class WorkState {
 public:
  static constexpr int kAll = -1;

  virtual ~WorkState() = default;

  // Never blocks; but for a look, does a share of the transfer, so that polling alone makes
  // progress. Of a part
  // that is out of range, an await is Done, since wait() throws.
  virtual Poll poll(Poller by, int part = kAll);
  // Blocks in place, helping with the transfer, until complete; throws the typed error. No user
  // handler and no coroutine runs meanwhile. On a device with streams it waits only until the
  // transfer is queued: the compute stream is ordered after it, and a later failure is thrown by
  // the host's next wait.
  virtual void wait(int part = kAll);
  // Called during a wait, `waited_ns` long so far, for something that includes this: throws what
  // wait() would if this has failed or is past the deadline. Never blocks.
  virtual void check(std::int64_t waited_ns);
  // See Waiting.
  virtual bool subscribe(Parker& parker);
  virtual void unsubscribe(Parker& parker) noexcept;
  // Memory that the library does not own is about to be freed: no rank may use it any more.
  virtual void cancel(const std::string& cause);
  virtual void note(WorkEvent event);
  virtual WorkInfo info(int part = kAll) const;
  virtual std::string describe() const;
  // Why the data will never arrive; "": not known to have failed.
  virtual std::string failure() const;

  bool ready(int part = kAll) { return poll(Poller::Query, part) == Poll::Done; }

 protected:
  explicit WorkState(std::shared_ptr<WorkState> inner = nullptr) : inner_(std::move(inner)) {}
  const std::shared_ptr<WorkState>& inner() const { return inner_; }
  void set_inner(std::shared_ptr<WorkState> inner) { inner_ = std::move(inner); }

 private:
  std::shared_ptr<WorkState> inner_;  // null: poll and wait are overridden
};

using WorkStates = std::vector<std::shared_ptr<WorkState>>;

// Suspends in the queue `waiting` until all of the work, or one part of it, is over. It always
// suspends, even if there is nothing to wait for, so that whether it suspends depends on the
// program's structure alone. Without an executor it waits in place.
//   Resumes: when it is the head of `waiting` and over.
//   Fails:   with the collective's error, or with what its branch was cancelled with.
//   Cancel:  leaves `waiting` and resumes through `ready`; the collective continues without it.
class WorkAwaiter : public Waiting {
 public:
  using awaitable_of_coshard = void;
  enum class Resume : bool { InOrder, AsItComes };

  explicit WorkAwaiter(std::shared_ptr<WorkState> state, int part = -1,
                       Resume resume = Resume::InOrder)
      : state_(std::move(state)), part_(part), resume_(resume) {}
  explicit WorkAwaiter(WorkStates states) : more_(std::move(states)) {}

  bool await_ready() const;
  void await_suspend(std::coroutine_handle<> self);
  void await_resume();

  const std::shared_ptr<WorkState>& awaited() const noexcept { return state_; }

  void give_up() noexcept final;
  Poll poll() final;
  bool subscribe(Parker& parker) final;
  void unsubscribe(Parker& parker) noexcept final;
  std::int64_t check(std::int64_t waited_ns) final;
  bool ends_in_time() const final;
  void rank_runs() final;
  std::string describe() const final;

 private:
  void begin();
  Poll poll_next();
  template <class F>
  void each(const F& f) const {
    if (state_) f(*state_);
    for (const auto& state : more_)
      if (state) f(*state);
  }

  std::shared_ptr<WorkState> state_;  // null: nothing to wait for
  WorkStates more_;
  Executor* executor_ = nullptr;  // of the rank that is suspended
  int part_ = -1;
  Resume resume_ = Resume::InOrder;
  bool begun_ = false;
  std::exception_ptr error_;  // found while it was waited for
};

// Move-only. Dropping it does not cancel: peers rely on this rank's part, and the library keeps the
// memory it owns until they are done with it. If the memory is the caller's, the destructor waits;
// during stack unwinding it first poisons the communicator, which is unusable afterwards.
class [[nodiscard]] Work {
 public:
  using awaitable_of_coshard = void;

  Work() = default;
  explicit Work(std::shared_ptr<WorkState> state, bool owns_memory = true);
  Work(Work&& other) noexcept
      : state_(std::move(other.state_)), owned_(other.owned_), exceptions_(other.exceptions_) {}
  Work& operator=(Work&& other) noexcept {
    if (this != &other) {
      if (!owned_ && state_) finish();
      state_ = std::move(other.state_);
      owned_ = other.owned_;
      exceptions_ = other.exceptions_;
    }
    return *this;
  }
  ~Work() {
    if (!owned_ && state_) finish();
  }

  explicit operator bool() const noexcept { return state_ != nullptr; }
  bool ready() const { return !state_ || state_->ready(); }
  // Waits in place.
  void wait() const {
    if (state_) state_->wait();
  }
  WorkAwaiter operator co_await() const { return WorkAwaiter(state_); }
  const std::shared_ptr<WorkState>& state() const noexcept { return state_; }

 private:
  void finish() noexcept;

  std::shared_ptr<WorkState> state_;
  bool owned_ = true;
  int exceptions_ = 0;
};

// For programs whose ranks differ (pipelines, servers): resumes through `ready` as soon as the work
// is over, in completion order. From then on the branch may not issue collectives
// (Error{BadInput}), only send and recv.
class AsItComes {
 public:
  using awaitable_of_coshard = void;
  explicit AsItComes(const Work& work) : state_(work.state()) {}
  WorkAwaiter operator co_await() const {
    return WorkAwaiter(state_, -1, WorkAwaiter::Resume::AsItComes);
  }

 private:
  std::shared_ptr<WorkState> state_;
};
inline AsItComes as_it_comes(const Work& work) { return AsItComes(work); }

}  // namespace coshard
#pragma GCC visibility pop
