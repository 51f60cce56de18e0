// The calling thread of run_ranks while the ranks run: it reports the first failure, and ranks that
// do not end after it.
#include <algorithm>

#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/world.h>
#include "runtime/launch/run_state.h"

namespace coshard {
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
  told_ = now;
  next_reminder_ = now + std::min<Time>(kFirstReminder, within_a_year(options_.grace));
  report(*kept);
  if (!options_.on_failure) return now;
  Failure failure = kept->failure;
  lock.unlock();
  failure.elsewhere = !roster_.reports_failure();
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
    news.text +=
        str_cat(news.ranks.empty() ? "" : ", ", "rank ", rank, " (", roster_.last_seen(rank), ")");
    news.ranks.push_back(rank);
  }
  return news;
}

}  // namespace coshard
