#pragma once
// State shared by the ranks of one run in this process: which ranks are running, what failed first,
// and what was reported. Owned by run_ranks, outlives the ranks. Functions called by ranks say so;
// the thread that called run_ranks watches, so that a stuck rank cannot prevent failures from being
// reported.
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <coshard/runtime/coro/executor.h>
#include <coshard/runtime/launch/failure.h>
#include <coshard/runtime/launch/world.h>
#include "runtime/control/failure_record.h"
#include "runtime/launch/rank_directory.h"

namespace coshard {

class RunState {
 public:
  using Time = std::chrono::nanoseconds;  // of the watcher's clock
  // All outlive it. `watcher`: where watch() sleeps, and the clock that bounds what is due.
  RunState(RankDirectory& directory, const WorldOptions& options, Parker& watcher);
  ~RunState() { directory_.on_failure(nullptr); }
  RunState(const RunState&) = delete;
  RunState& operator=(const RunState&) = delete;

  // This and the functions up to ends() are called on the rank's thread. The executor outlives all
  // ranks: it may be interrupted until the last of them has ended.
  void begins(int rank, Executor& executor);
  // A when_all child has failed, but the program may still catch the error; null: it has.
  void failing(const Failure& failure, const Executor::Failing* failing);
  // `error` has left the program, or is reported because siblings it cancelled do not end. Ends all
  // other ranks too: those waiting for a peer by poison, those waiting for a timer or a socket by
  // an error in their executor. Error{Cancelled} is not a failure and ends no other rank. If it
  // throws std::bad_alloc, it may be called again.
  void failed(const Failure& failure, const std::exception_ptr& error);
  void ends(int rank);

  // Any thread. Wakes a rank that has begun and not ended.
  void wake(int rank);
  // A deadlock: every rank waits and nothing can wake one.
  void on_deadlock(const std::string& text);

  // On the caller's thread: calls the hooks of the options until all ranks of this process have
  // ended. Exceptions of hooks are dropped: the failure they report will be thrown anyway.
  void watch();
  // Non-blocking watch(): does what is due and returns when to call it next; call it sooner if
  // `changed` is called, which happens on any thread and must not call back. One thread at a time.
  std::optional<Time> look();
  void on_change(std::function<void()> changed);  // null: none
  bool over() const;                              // all ranks of this process have ended
  // The first original error; else the first that only reports a peer's; else the first
  // cancellation.
  void rethrow() const;
  std::exception_ptr error() const;  // the same; null: none

 private:
  // In order of preference as the reported error.
  enum Kind { kOwn, kEcho, kCancelled, kKinds };
  struct Kept {
    Failure failure;
    std::exception_ptr error;
    Time at{};
  };
  struct Rank {
    bool here = false;             // in this process
    Executor* executor = nullptr;  // null: it has not begun
    bool ended = false;
    std::optional<Kept> failing;
    Time overdue{};             // when it is reported
    std::string siblings;       // in foreign awaitables, which it waits for until then; "": none
    bool told_failing = false;  // `failing` was reported
  };

  static Kind kind_of(const std::exception_ptr& error);
  bool all_have_ended() const;
  const Kept* before(int rank, const std::exception_ptr& error) const;
  void keep(Kind kind, Kept kept);
  // Under the mutex: what the guard of this process has not been told yet.
  std::optional<FailureRecord> unreported(const Kept& kept) const;
  void tell_of_change();
  Time now() const { return Time(watcher_.now()); }
  std::optional<Time> do_what_is_due(std::unique_lock<std::mutex>& lock);
  void end_all(const std::string& cause);
  std::optional<Time> tell_overdue(std::unique_lock<std::mutex>& lock);
  std::optional<Time> tell_failure(std::unique_lock<std::mutex>& lock);
  std::optional<Time> tell_still_running(std::unique_lock<std::mutex>& lock);
  StillRunning still_running(Time now) const;

  RankDirectory& directory_;
  const WorldOptions& options_;
  Parker& watcher_;
  mutable std::mutex mutex_;  // all below
  // Given back at the first failure, which may be that memory is exhausted.
  std::unique_ptr<std::byte[]> reserve_{new std::byte[std::size_t{1} << 20]};
  std::function<void()> on_change_;
  std::vector<Rank> ranks_;  // by world rank; those in other processes never begin
  std::optional<Kept> kept_[kKinds];
  mutable bool reported_ = false, reported_peer_ = false;  // to the guard: own failure, a peer's
  std::string cause_;  // why all ranks were ended; "": they were not
  std::optional<Time> told_;
  Time next_reminder_{};
};

}  // namespace coshard
