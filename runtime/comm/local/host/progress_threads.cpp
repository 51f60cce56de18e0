#include "runtime/comm/local/host/progress_threads.h"

#include <pthread.h>

#include <algorithm>
#include <optional>

#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/error.h>
#include "runtime/comm/local/group.h"
#include "runtime/coro/deadlock_detector.h"
#include "runtime/device/make_device.h"
#include "runtime/start_thread.h"

namespace coshard {
namespace {

// While ranks compute; a shorter poll costs computation more than it gains (20 MB over TCP).
constexpr std::int64_t kBusyPollNs = 500'000;
// When nothing has moved for this long, some rank is late by more than a longer poll adds.
constexpr std::int64_t kQuietNs = 20'000'000, kQuietPollNs = 1'000'000;
// Polling continues this long after the last op in flight: waking a thread would cost the next
// issuer more.
constexpr std::int64_t kLingerNs = 5'000'000;

}  // namespace

// An op, to which it holds a reference, or a message.
class ProgressThreads::Offered {
 public:
  Offered(std::shared_ptr<LocalGroup> group, CollectiveOp* op, std::shared_ptr<Message> message)
      : group_(std::move(group)), op_(op), message_(std::move(message)) {
    if (op_ != nullptr) used_.emplace(*op_);
  }
  Offered(const Offered&) = delete;
  Offered& operator=(const Offered&) = delete;

  bool is(const CollectiveOp& op) const { return op_ == &op; }
  bool over() const {
    return group_->poisoned() || (op_ != nullptr ? op_->over.load() : message_->over());
  }
  bool help() { return op_ != nullptr ? group_->help(*op_) : group_->help(*message_); }
  // When to check it without a wake-up; 0: never.
  std::int64_t not_before() const {
    return op_ != nullptr && group_->link() != nullptr ? group_->not_before(*op_) : 0;
  }

 private:
  std::shared_ptr<LocalGroup> group_;
  CollectiveOp* op_;
  std::optional<OpReference> used_;
  std::shared_ptr<Message> message_;
};

ProgressThreads::ProgressThreads(int threads, std::shared_ptr<RemoteRanks> remote,
                                 TransferClock* clock)
    : remote_(std::move(remote)), clock_(clock) {
  try {
    for (int i = 0; i < threads; ++i) {
      helpers_.push_back(std::make_unique<Helper>());
      Helper& helper = *helpers_.back();
      helper.thread = start_thread([this, &helper, i] { run(helper, str_cat("progress ", i)); });
    }
  } catch (...) {  // out of threads
    stop();
    throw;
  }
}

void ProgressThreads::offer(std::shared_ptr<LocalGroup> group, CollectiveOp& op) {
  const bool wakes = group->remote() == nullptr;
  {
    const std::scoped_lock lock(mutex_);
    if (std::ranges::any_of(offered_, [&](const auto& known) { return known->is(op); }))
      return wakes ? wake_all() : void();
  }
  add(std::make_shared<Offered>(std::move(group), &op, nullptr), wakes);
}

void ProgressThreads::offer(std::shared_ptr<LocalGroup> group, std::shared_ptr<Message> message) {
  const bool wakes = group->remote() == nullptr;
  add(std::make_shared<Offered>(std::move(group), nullptr, std::move(message)), wakes);
}

void ProgressThreads::forget(const CollectiveOp& op) {
  std::shared_ptr<Offered> gone;  // destroyed after the unlock
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find_if(offered_, [&](const auto& one) { return one->is(op); });
  if (found == offered_.end()) return;
  gone = std::move(*found);
  offered_.erase(found);
}

void ProgressThreads::add(std::shared_ptr<Offered> offered, bool wakes) {
  {
    const std::scoped_lock lock(mutex_);
    if (stopping_.load()) return;
    offered_.push_back(std::move(offered));
  }
  wake(wakes);
}

void ProgressThreads::wake(bool all) noexcept {
  moved_ns_.store(0, std::memory_order_relaxed);
  for (const auto& helper : helpers_)
    if (all || helper->asleep.load()) helper->wake();
}

void ProgressThreads::Helper::wake() noexcept {
  if (WaiterState* counted = waiter_state.load(std::memory_order_acquire)) counted->unparked();
  parker.unpark();
}

void ProgressThreads::wake_all() noexcept {
  for (const auto& helper : helpers_) helper->wake();
  if (clock_ != nullptr && !stopping_.load()) clock_->offered();
}

// They count as awake until they have checked again.
void ProgressThreads::count_in(DeadlockDetector& deadlock_detector) {
  for (const auto& helper : helpers_)
    helper->waiter_state.store(&deadlock_detector.add_helper(), std::memory_order_release);
  wake_all();
}

void ProgressThreads::stop() noexcept {
  Snapshot left;  // may hold the last owners of groups: destroyed after the unlock
  {
    const std::scoped_lock lock(mutex_);
    stopping_.store(true);
    left.swap(offered_);
  }
  wake_all();
  for (const auto& helper : helpers_)
    if (helper->thread.joinable()) helper->thread.join();
  for (const auto& helper : helpers_)
    helper->waiter_state.store(nullptr);  // the deadlock detector may go
}

// One pass over all offers; returns whether any advanced, and in `wake_ns` when to look again.
bool ProgressThreads::pass(Snapshot& offered, std::int64_t& wake_ns) {
  bool moved = false;
  wake_ns = 0;
  if (remote_ != nullptr && (!offered.empty() || remote_->in_flight())) {
    moved = remote_->drive();
    if (clock_ == nullptr) wake_ns = next_poll(moved);
  }
  for (const auto& one : offered) {
    // Times are read first, so that anything due by then is done by help().
    const std::int64_t looked_ns = LinkQueue::now(), later = one->not_before();
    while (!stopping_.load() && one->help()) moved = true;
    if (later > looked_ns && !one->over())
      wake_ns = wake_ns == 0 ? later : std::min(wake_ns, later);
  }
  return moved;
}

std::int64_t ProgressThreads::next_poll(bool moved) {
  const std::int64_t now = LinkQueue::now();
  std::int64_t since = moved_ns_.load(std::memory_order_relaxed);
  if (moved || since == 0) moved_ns_.store(since = now, std::memory_order_relaxed);
  return now + (now - since > kQuietNs ? kQuietPollNs : kBusyPollNs);
}

void ProgressThreads::sleep(Helper& helper, std::int64_t wake_ns) {
  if (wake_ns != 0) return helper.parker.park(wake_ns);
  helper.asleep.store(true);
  bool busy = false;
  if (remote_ != nullptr) {
    const std::scoped_lock lock(mutex_);
    busy = !offered_.empty() || remote_->in_flight();
  }
  if (!busy) helper.parker.park(0);
  helper.asleep.store(false);
}

std::int64_t ProgressThreads::poll() {
  std::int64_t wake_ns = 0;
  for (bool moved = true; moved && !stopping_.load();) {
    Snapshot offered;
    {
      const std::scoped_lock lock(mutex_);
      std::erase_if(offered_, [](const auto& one) { return one->over(); });
      offered = offered_;
    }
    moved = pass(offered, wake_ns);
  }
  return wake_ns;
}

void ProgressThreads::run(Helper& helper, const std::string& name) {
  pthread_setname_np(pthread_self(), name.c_str());
  RankContext context(&helper.parker);
  RankContext::exchange(&context);
  const auto one_thread = make_device(DeviceKind::Cpu, {0, 1});  // for the kernels it runs
  Snapshot offered;
  std::int64_t linger_ns = 0;
  while (!stopping_.load()) {
    IdleScope nap(helper.waiter_state.load(std::memory_order_acquire));
    {
      const std::scoped_lock lock(mutex_);
      std::erase_if(offered_, [](const auto& one) { return one->over(); });
      offered = offered_;
    }
    std::int64_t wake_ns = 0;
    const bool moved = pass(offered, wake_ns);
    offered.clear();
    if (moved || stopping_.load()) continue;
    const std::int64_t now = remote_ != nullptr ? LinkQueue::now() : 0;
    if (wake_ns != 0) linger_ns = now + kLingerNs;
    if (wake_ns == 0 && linger_ns > now) wake_ns = now + kBusyPollNs;
    if (wake_ns != 0 || nap.begin()) sleep(helper, wake_ns);
  }
  RankContext::exchange(nullptr);
}

}  // namespace coshard
