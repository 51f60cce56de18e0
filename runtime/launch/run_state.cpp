#include "runtime/launch/run_state.h"

#include <algorithm>
#include <utility>

#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/world.h>
#include "runtime/comm/peer_failure.h"
#include "runtime/control/failure_record.h"

namespace coshard {
namespace {

constexpr auto kOverdue = std::chrono::seconds(1);  // for a cancelled sibling to end

// Errors that a rank may get because it waited for one that had already failed.
bool may_be_a_consequence(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return known.kind() == ErrorKind::Timeout || known.kind() == ErrorKind::CommFailed;
  } catch (...) {
    return false;
  }
}

}  // namespace

RunState::RunState(Roster& roster, const WorldOptions& options, Parker& watcher)
    : roster_(roster),
      options_(options),
      watcher_(watcher),
      ranks_(static_cast<std::size_t>(roster.size())) {
  report_recovery();  // a run that failed before
  for (const int rank : roster_.here()) ranks_[static_cast<std::size_t>(rank)].here = true;
  roster_.on_failure([this](const std::string& cause) {
    failed({-1, cause}, std::make_exception_ptr(PeerFailure(cause)));
  });
}

RunState::Kind RunState::kind_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerFailure&) {
    return kEcho;
  } catch (const Error& known) {
    return known.kind() == ErrorKind::Cancelled ? kCancelled : kOwn;
  } catch (...) {
    return kOwn;
  }
}

void RunState::begins(int rank, Executor& executor) {
  const std::scoped_lock lock(mutex_);
  ranks_[static_cast<std::size_t>(rank)].executor = &executor;
  if (!cause_.empty()) executor.interrupt(std::make_exception_ptr(PeerFailure(cause_)));
}

void RunState::ring(int rank) {
  const std::scoped_lock lock(mutex_);
  const Rank& rung = ranks_[static_cast<std::size_t>(rank)];
  if (rung.executor != nullptr && !rung.ended) rung.executor->context().parker().ring();
}

void RunState::ends(int rank) {
  const std::scoped_lock lock(mutex_);
  ranks_[static_cast<std::size_t>(rank)].ended = true;
  tell_of_change();
}

void RunState::failing(const Failure& failure, const Executor::Failing* failing) {
  const std::scoped_lock lock(mutex_);
  Rank& rank = ranks_[static_cast<std::size_t>(failure.rank)];
  if (failing == nullptr) {
    rank.failing.reset();
    rank.told_failing = false;
  } else if (!rank.failing && kind_of(failing->error) == kOwn) {
    rank.failing = Kept{failure, failing->error, now()};
    const Time foreign = std::min<Time>(Time(failing->foreign_ns), std::chrono::hours(24 * 365));
    rank.overdue = rank.failing->at + kOverdue + foreign;
    rank.siblings = foreign.count() > 0 ? failing->siblings : "";
    tell_of_change();
  }
}

// The earlier failure of another rank, if it may have caused `error`.
const RunState::Kept* RunState::before(int rank, const std::exception_ptr& error) const {
  if (!may_be_a_consequence(error)) return nullptr;
  const Kept* first = nullptr;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const std::optional<Kept>& failing = ranks_[r].failing;
    if (!failing || static_cast<int>(r) == rank) continue;
    if (first == nullptr || failing->at < first->at) first = &*failing;
  }
  return first;
}

void RunState::keep(Kind kind, Kept kept) {
  if (!kept_[kind]) kept_[kind] = std::move(kept);
  tell_of_change();
}

void RunState::failed(const Failure& failure, const std::exception_ptr& error) {
  const Kind kind = kind_of(error);
  std::string cause;
  {
    const std::scoped_lock lock(mutex_);
    reserve_.reset();
    Kept kept{failure, error, now()};
    if (const Kept* cause = kind == kOwn ? before(failure.rank, error) : nullptr) kept = *cause;
    if (kind == kEcho || kept.failure.rank < 0) {
      cause = kept.failure.text;
    } else {
      cause = str_cat("rank ", kept.failure.rank, " ended with: ", kept.failure.text);
    }
    if (kind == kOwn) report(kept);
    keep(kind, std::move(kept));
  }
  if (kind != kCancelled) end_all(cause);
}

// The first time: to the guard of this process.
void RunState::report(const Kept& kept) const {
  if (!std::exchange(reported_, true)) report_failure(record_of(kept.failure, kept.error));
}

void RunState::standstill(const std::string& text) {
  failed({-1, text}, std::make_exception_ptr(Error(ErrorKind::CommFailed, text)));
}

// Poison first, so that a rank's error says what it was waiting for.
void RunState::end_all(const std::string& cause) {
  roster_.fail(cause);
  const std::scoped_lock lock(mutex_);
  if (!cause_.empty()) return;
  std::string known = cause;
  // A rank that has ended keeps only its executor, for late posts from other threads.
  for (const Rank& rank : ranks_)
    if (rank.executor != nullptr && !rank.ended)
      rank.executor->interrupt(std::make_exception_ptr(PeerFailure(cause)));
  cause_ = std::move(known);
}

bool RunState::all_have_ended() const {
  return std::ranges::all_of(ranks_, [](const Rank& r) { return !r.here || r.ended; });
}

bool RunState::over() const {
  const std::scoped_lock lock(mutex_);
  return all_have_ended();
}

void RunState::on_change(std::function<void()> changed) {
  const std::scoped_lock lock(mutex_);
  on_change_ = std::move(changed);
}

void RunState::tell_of_change() {
  watcher_.ring();
  if (on_change_) on_change_();
}

std::exception_ptr RunState::error() const {
  const std::scoped_lock lock(mutex_);
  for (const std::optional<Kept>& kept : kept_) {
    if (!kept) continue;
    report(*kept);
    return kept->error;
  }
  return nullptr;
}

void RunState::rethrow() const {
  if (const std::exception_ptr first = error()) std::rethrow_exception(first);
}

}  // namespace coshard
