#include "runtime/launch/run_state.h"

#include <algorithm>
#include <utility>

#include <coshard/runtime/coro/deadline.h>
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

RunState::RunState(RankDirectory& directory, const WorldOptions& options, Parker& watcher)
    : directory_(directory),
      options_(options),
      watcher_(watcher),
      ranks_(static_cast<std::size_t>(directory.size())) {
  report_recovery();  // a run that failed before
  for (const int rank : directory_.here()) ranks_[static_cast<std::size_t>(rank)].here = true;
  directory_.on_failure([this](const std::string& cause) {
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

void RunState::wake(int rank) {
  const std::scoped_lock lock(mutex_);
  const Rank& woken = ranks_[static_cast<std::size_t>(rank)];
  if (woken.executor != nullptr && !woken.ended) woken.executor->context().parker().unpark();
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
  std::optional<FailureRecord> record;
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
    if (kind == kOwn) record = unreported(kept);
    keep(kind, std::move(kept));
  }
  if (record) report_failure(*record);  // before peers learn of it
  if (kind != kCancelled) end_all(cause);
}

std::optional<FailureRecord> RunState::unreported(const Kept& kept) const {
  FailureRecord record = record_of(kept.failure, kept.error);
  if (reported_ || (record.of_peer && reported_peer_)) return std::nullopt;
  (record.of_peer ? reported_peer_ : reported_) = true;
  return record;
}

void RunState::on_deadlock(const std::string& text) {
  failed({-1, text}, std::make_exception_ptr(Error(ErrorKind::CommFailed, text)));
}

// Poison first, so that a rank's error says what it was waiting for.
void RunState::end_all(const std::string& cause) {
  directory_.fail(cause);
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
  watcher_.unpark();
  if (on_change_) on_change_();
}

std::exception_ptr RunState::error() const {
  std::optional<FailureRecord> record;
  std::exception_ptr first;
  {
    const std::scoped_lock lock(mutex_);
    for (const std::optional<Kept>& kept : kept_) {
      if (!kept || first) continue;
      first = kept->error;
      record = unreported(*kept);
    }
  }
  if (record) report_failure(*record);
  return first;
}

void RunState::rethrow() const {
  if (const std::exception_ptr first = error()) std::rethrow_exception(first);
}

namespace {

using namespace std::chrono_literals;
using Time = RunState::Time;
using Due = std::optional<Time>;
constexpr auto kEchoWaits = 500ms;  // for the error behind a peer's echo of it
constexpr auto kFirstReminder = 1s;
constexpr auto kReminder = 2s;

Due earlier(const Due& a, const Due& b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

// Avoids overflow of time points.
std::chrono::milliseconds within_a_year(std::chrono::milliseconds time) {
  return std::min<std::chrono::milliseconds>(time, 24h * 365);
}

template <class Hook, class News>
void call(const Hook& hook, const News& news, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  try {
    hook(news);
  } catch (...) {  // dropped, see run_state.h
  }
  lock.lock();
}

}  // namespace

void RunState::watch() {
  std::unique_lock lock(mutex_);
  while (!all_have_ended()) {
    const Due due = do_what_is_due(lock);
    if (all_have_ended()) break;
    lock.unlock();
    watcher_.park(due ? due->count() : 0);
    lock.lock();
  }
  tell_failure(lock);
}

Due RunState::look() {
  std::unique_lock lock(mutex_);
  return do_what_is_due(lock);
}

// Each of these does what is due and returns when it is due next. Calling a hook releases the lock,
// so afterwards what is due must be checked again.
Due RunState::do_what_is_due(std::unique_lock<std::mutex>& lock) {
  Due due = tell_overdue(lock);
  due = earlier(due, tell_failure(lock));
  return earlier(due, tell_still_running(lock));
}

Due RunState::tell_overdue(std::unique_lock<std::mutex>& lock) {
  const Time now = this->now();
  Due next;
  for (Rank& rank : ranks_) {
    if (!rank.failing || rank.told_failing || rank.ended) continue;
    if (now < rank.overdue) {
      next = earlier(next, rank.overdue);
      continue;
    }
    rank.told_failing = true;
    Kept kept = *rank.failing;
    if (!rank.siblings.empty()) {
      kept.failure.text += str_cat("; what it cancelled has not ended ",
                                   to_string(rank.overdue - kept.at), " later: ", rank.siblings);
      kept.error = std::make_exception_ptr(Error(ErrorKind::Timeout, kept.failure.text));
    }
    lock.unlock();
    failed(kept.failure, kept.error);
    lock.lock();
    return now;
  }
  return next;
}

Due RunState::tell_failure(std::unique_lock<std::mutex>& lock) {
  const std::optional<Kept>& kept = kept_[kOwn] ? kept_[kOwn] : kept_[kEcho];
  if (told_ || !kept) return {};
  const Time now = this->now();
  const bool echo = !kept_[kOwn] && !all_have_ended();
  if (echo && now < kept->at + kEchoWaits) return kept->at + kEchoWaits;
  const std::optional<FailureRecord> record = unreported(*kept);
  Failure failure = kept->failure;
  told_ = now;
  next_reminder_ = now + std::min<Time>(kFirstReminder, within_a_year(options_.grace));
  lock.unlock();
  if (record) report_failure(*record);
  lock.lock();
  if (!options_.on_failure) return now;
  lock.unlock();
  failure.elsewhere = !directory_.reports_failure();
  lock.lock();
  call(options_.on_failure, failure, lock);
  return now;
}

Due RunState::tell_still_running(std::unique_lock<std::mutex>& lock) {
  if (!told_ || !options_.on_still_running || all_have_ended()) return {};
  const Time now = this->now();
  if (now < next_reminder_) return next_reminder_;
  const StillRunning news = still_running(now);
  const Time end_of_grace = *told_ + within_a_year(options_.grace);
  next_reminder_ = now < end_of_grace ? std::min(now + kReminder, end_of_grace) : now + kReminder;
  call(options_.on_still_running, news, lock);
  return next_reminder_;
}

StillRunning RunState::still_running(Time now) const {
  StillRunning news;
  news.since = std::chrono::duration_cast<std::chrono::milliseconds>(now - *told_);
  news.out_of_grace = now >= *told_ + within_a_year(options_.grace);
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].executor == nullptr || ranks_[r].ended) continue;
    const int rank = static_cast<int>(r);
    news.text += str_cat(news.ranks.empty() ? "" : ", ", "rank ", rank, " (",
                         directory_.last_seen(rank), ")");
    news.ranks.push_back(rank);
  }
  return news;
}

}  // namespace coshard
