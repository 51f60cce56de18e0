#pragma once
// What the ranks of one run that live in this process share: who runs, what went wrong first, who
// was told. Owned by run_ranks, outlives the ranks. What a rank calls is marked so; the thread that
// called run_ranks does the watching, so that a rank that is stuck keeps nobody from hearing of it.
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <coshard/runtime/coro/executor.h>
#include <coshard/runtime/launch/failure.h>
#include "runtime/launch/roster.h"

namespace coshard {

struct WorldOptions;

class RunState {
 public:
  using Clock = std::chrono::steady_clock;
  // Both outlive it.
  RunState(Roster& roster, const WorldOptions& options);

  // The rank's thread, up to ends(). The executor outlives all ranks: it may be interrupted until
  // the last of them has ended.
  void begins(int rank, Executor& executor);
  // A sibling has failed, but the program may still catch that; null: it has been caught.
  void failing(const Failure& failure, const std::exception_ptr& error);
  // `error` has left the program, or is told because what it cancelled does not end. All other
  // ranks end with it: those that wait for a peer by the poison, those that wait for time or a
  // socket by an error in their executor. Error{Cancelled} ends nobody: it is no failure.
  void failed(const Failure& failure, const std::exception_ptr& error);
  void ends(int rank);

  // Any thread. Wakes a rank that has begun and not ended.
  void ring(int rank);
  // Every rank waits, and nothing is left that could wake one.
  void standstill(const std::string& text);

  // The caller's thread: returns when all ranks that began have ended; meanwhile calls the hooks of
  // the options. What a hook throws is dropped: the failure that it is told of is on its way.
  void watch();
  // The same for who has no thread for it: does what is due and gives when to call it next, which
  // is sooner when `changed` is called; that may be on any thread, and only takes note of it. One
  // thread at a time.
  std::optional<Clock::time_point> look();
  void on_change(std::function<void()> changed);  // null: nobody
  bool over() const;                              // all ranks that began have ended
  // The first error of a rank's own; else the first that only tells of a peer's; else the first
  // cancellation.
  void rethrow() const;
  std::exception_ptr error() const;  // the same; null: none

 private:
  // In the order in which one is preferred as the cause.
  enum Kind { kOwn, kEcho, kCancelled, kKinds };
  struct Kept {
    Failure failure;
    std::exception_ptr error;
    Clock::time_point at;
  };
  struct Rank {
    bool here = false;             // in this process
    Executor* executor = nullptr;  // null: it has not begun
    bool ended = false;
    std::optional<Kept> failing;
    bool told_failing = false;  // of `failing`
  };

  static Kind kind_of(const std::exception_ptr& error);
  bool all_have_ended() const;
  const Kept* before(int rank, const std::exception_ptr& error) const;
  void keep(Kind kind, Kept kept);
  void tell_of_change();
  std::optional<Clock::time_point> do_what_is_due(std::unique_lock<std::mutex>& lock);
  void end_all(const std::string& cause);
  std::optional<Clock::time_point> tell_overdue(std::unique_lock<std::mutex>& lock);
  std::optional<Clock::time_point> tell_failure(std::unique_lock<std::mutex>& lock);
  std::optional<Clock::time_point> tell_still_running(std::unique_lock<std::mutex>& lock);
  StillRunning still_running(Clock::time_point now) const;

  Roster& roster_;
  const WorldOptions& options_;
  mutable std::mutex mutex_;  // all below
  std::condition_variable changed_;
  std::function<void()> on_change_;
  std::vector<Rank> ranks_;  // by world rank; those that are elsewhere never begin
  std::optional<Kept> kept_[kKinds];
  std::string cause_;  // what all ranks were ended with; "": they were not
  std::optional<Clock::time_point> told_;
  Clock::time_point next_reminder_;
};

}  // namespace coshard
