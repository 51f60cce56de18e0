#include "runtime/coro/deadlock_detector.h"

#include <algorithm>
#include <span>
#include <vector>

#include <coshard/runtime/error.h>

namespace coshard {

bool WaiterState::fall_asleep() {
  std::uint32_t dozing = kDozing;
  // Acquire on failure: what was written before the wake-up is visible to the next look.
  if (!state_.compare_exchange_strong(dozing, kAsleep, std::memory_order_acq_rel,
                                      std::memory_order_acquire))
    return false;
  // A waker between these two steps has already added one: the count is briefly too high, never
  // too low.
  deadlock_detector_.one_less();
  return true;
}

void WaiterState::wake() noexcept {
  std::uint32_t state = state_.load(std::memory_order_relaxed);
  for (;;) {
    const bool asleep = state == kAsleep;
    // Counted before the state changes: the rank may run, and fall asleep again, as soon as it
    // does.
    if (asleep) deadlock_detector_.awake_.fetch_add(1, std::memory_order_acq_rel);
    if (state_.compare_exchange_strong(state, kAwake, std::memory_order_acq_rel,
                                       std::memory_order_relaxed))
      return;
    if (asleep) deadlock_detector_.one_less();  // another waker has woken and counted it
  }
}

void WaiterState::report(std::string standing) {
  std::unique_lock lock(deadlock_detector_.mutex_);
  if (!asked_.load(std::memory_order_relaxed)) return;
  asked_.store(false, std::memory_order_relaxed);
  standing_ = std::move(standing);
  deadlock_detector_.answered(lock);
}

WaiterState& DeadlockDetector::add(int rank) {
  awake_.fetch_add(1, std::memory_order_relaxed);
  const std::scoped_lock lock(mutex_);
  return sleepers_.emplace_back(*this, rank);
}

WaiterState& DeadlockDetector::add_helper() { return add(WaiterState::kHelper); }

void DeadlockDetector::leave(WaiterState& waiter_state) {
  {
    std::unique_lock lock(mutex_);
    waiter_state.left_ = true;
    if (waiter_state.asked_.exchange(false, std::memory_order_relaxed)) answered(lock);
  }
  one_less();
}

void DeadlockDetector::one_less() {
  if (awake_.fetch_sub(1, std::memory_order_acq_rel) == 1) ask();
}

void DeadlockDetector::ask() {
  if (asks_.load(std::memory_order_acquire)) return;  // possibly re-entered through wake_ below
  const std::scoped_lock lock(mutex_);
  // A rank that has since woken by its own deadline will get here again.
  if (asks_.load(std::memory_order_relaxed) || awake_.load(std::memory_order_acquire) > 0) return;
  for (WaiterState& waiter_state : sleepers_) {
    if (!waiter_state.is_asked()) continue;
    waiter_state.asked_.store(true, std::memory_order_release);
    ++unanswered_;
  }
  asks_.store(unanswered_ > 0, std::memory_order_release);
  for (WaiterState& waiter_state : sleepers_)
    if (waiter_state.is_asked()) wake_(waiter_state.rank_);
}

void DeadlockDetector::answered(std::unique_lock<std::mutex>& lock) {
  if (--unanswered_ > 0) return;
  const std::string all = standings();
  lock.unlock();
  on_deadlock_(all);
}

std::string DeadlockDetector::standings() const {
  struct Place {
    std::string standing, ranks;
    int count = 0;
  };
  std::vector<Place> places;
  for (const WaiterState& waiter_state : sleepers_) {
    if (waiter_state.rank_ == WaiterState::kHelper) continue;
    const std::string standing = waiter_state.left_ ? "has ended" : waiter_state.standing_;
    auto here = std::ranges::find(places, standing, &Place::standing);
    if (here == places.end()) here = places.insert(here, {standing, "", 0});
    here->ranks += str_cat(here->count++ == 0 ? "" : ",", waiter_state.rank_);
  }
  constexpr std::size_t kNamed = 16;
  std::string text;
  for (const Place& place : std::span(places).first(std::min(places.size(), kNamed)))
    text += str_cat(text.empty() ? "" : "; ", place.count == 1 ? "rank " : "each of ranks ",
                    place.ranks, " ", place.standing);
  if (places.size() > kNamed) text += str_cat("; and ", places.size() - kNamed, " more");
  return text;
}

}  // namespace coshard
