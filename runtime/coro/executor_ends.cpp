// Early end of an executor's program: interruptions, failing siblings, tasks spawned beside it,
// awaitables that nobody resumes.
#include <algorithm>
#include <limits>
#include <vector>

#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/wait_limit.h>
#include "runtime/coro/executor_asio.h"
#include "runtime/coro/fiber_thread.h"

namespace coshard {
namespace {

constexpr std::int64_t kGiveUpNs = 500'000'000;  // for what cannot be cancelled
constexpr std::int64_t kForEver = std::numeric_limits<std::int64_t>::max();

}  // namespace

// Whether the root was interrupted and is no longer waited for: when nothing is left to resume it,
// or after kGiveUpNs despite timers, which then guard waits that cannot be cancelled.
bool Executor::is_given_up(bool asio_works) const {
  if (give_up_at_ns_ == 0 || waits_for_others()) return false;
  return now() >= give_up_at_ns_ || (timers_.empty() && !asio_works && foreign_.empty());
}

// The error of a task that nothing will complete: if siblings were cancelled but cannot end, the
// error they were cancelled for.
std::exception_ptr Executor::waits_for_nobody() const {
  if (!failing_.empty()) return failing_.front().error;
  return std::make_exception_ptr(
      Error(ErrorKind::BadInput,
            "executor: deadlock: the task waits for something that nothing will complete"));
}

void Executor::hold_foreign(ForeignWait& wait) {
  const std::int64_t limit = WaitLimit::here().value_or(timeout_ns_);
  if (foreign_.empty()) foreign_limit_ns_ = 0;
  foreign_limit_ns_ = std::max(foreign_limit_ns_, limit > 0 ? limit : kForEver);
  wait.index_ = foreign_.size();
  foreign_.push_back(&wait);
  foreign_since_ns_ = 0;
}

void Executor::release_foreign(ForeignWait& wait) noexcept {
  ForeignWait* const last = foreign_.back();
  foreign_[wait.index_] = last;
  last->index_ = wait.index_;
  foreign_.pop_back();
  foreign_since_ns_ = 0;
}

// When it ends a program that only foreign awaitables could wake; 0: never.
std::int64_t Executor::only_foreign_until(bool asio_works) {
  const bool only = !foreign_.empty() && timers_.empty() && !asio_works && !waits_for_others();
  if (!only) foreign_since_ns_ = 0;
  if (!only) return 0;
  if (foreign_since_ns_ == 0) foreign_since_ns_ = now();
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() - foreign_since_ns_;
  return foreign_limit_ns_ > most ? 0 : foreign_since_ns_ + foreign_limit_ns_;
}

std::exception_ptr Executor::not_resumed() const {
  std::string text =
      str_cat("co_await of ", foreign_.front()->describe(), whose_, ": not resumed after ",
              to_string(std::chrono::nanoseconds(foreign_limit_ns_)),
              ", and nothing else can wake the rank; ");
  if (!failing_.empty())
    text += str_cat("it was cancelled because a sibling failed: ", text_of(failing_.front().error),
                    "; let its await_suspend take a std::stop_token and resume its handle then");
  else
    text +=
        "resume its handle, bound it by with_deadline, or, if it rightly takes that long, hold a "
        "cs::WaitLimit around the await";
  return std::make_exception_ptr(Error(ErrorKind::Timeout, text));
}

bool Executor::is_here() const {
  if (host_ != nullptr) return host_->is_here();
  if (thread_ != nullptr) return thread_->runs_here();
  if (&RankContext::current() == context_) return true;
  const auto* strand = asio_->executor.target<boost::asio::strand<boost::asio::any_io_executor>>();
  return strand != nullptr && strand->running_in_this_thread();
}

bool Executor::virtual_time() const noexcept {
  return thread_ != nullptr && thread_->virtual_time();
}

void Executor::add_beside(std::weak_ptr<void> owner, std::function<void()> destroy) {
  std::erase_if(beside_, [](const Beside& spawned) { return spawned.owner.expired(); });
  beside_.push_back({std::move(owner), std::move(destroy)});
}

void Executor::destroy_beside() {
  while (!beside_.empty()) {
    const Beside last = std::move(beside_.back());
    beside_.pop_back();
    if (const std::shared_ptr<void> alive = last.owner.lock()) last.destroy();
  }
}

void Executor::failing(const void* place, const std::exception_ptr& error, std::string siblings) {
  const std::int64_t foreign_ns = foreign_.empty() ? 0 : foreign_limit_ns_;
  failing_.push_back({place, error, std::move(siblings), foreign_ns});
  if (on_failing_) on_failing_(&failing_.back());
}

void Executor::settled(const void* place) noexcept {
  const auto gone = std::erase_if(failing_, [place](const Failing& f) { return f.place == place; });
  if (gone > 0 && failing_.empty() && on_failing_) on_failing_(nullptr);
}

void Executor::interrupt(std::exception_ptr cause) {
  run_soon([this, cause = std::move(cause)] {
    if (interruption_) return;
    interruption_ = cause;
    give_up_at_ns_ = now() + kGiveUpNs;
    main_branch().cancel(cause);
  });
}

}  // namespace coshard
