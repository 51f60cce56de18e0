#include "runtime/coro/census.h"

#include <algorithm>
#include <span>
#include <vector>

#include <coshard/runtime/error.h>

namespace coshard {

bool Sleeper::fall_asleep() {
  std::uint32_t dozing = kDozing;
  // Acquire on failure: what was written before the ring is visible to the next look.
  if (!state_.compare_exchange_strong(dozing, kAsleep, std::memory_order_acq_rel,
                                      std::memory_order_acquire))
    return false;
  // A ringer between these two steps has already added one: the count is briefly too high, never
  // too low.
  census_.one_less();
  return true;
}

void Sleeper::wake() noexcept {
  std::uint32_t state = state_.load(std::memory_order_relaxed);
  for (;;) {
    const bool asleep = state == kAsleep;
    // Counted before the state changes: the rank may run, and fall asleep again, as soon as it
    // does.
    if (asleep) census_.awake_.fetch_add(1, std::memory_order_acq_rel);
    if (state_.compare_exchange_strong(state, kAwake, std::memory_order_acq_rel,
                                       std::memory_order_relaxed))
      return;
    if (asleep) census_.one_less();  // another ringer has woken and counted it
  }
}

void Sleeper::answer(std::string standing) {
  std::unique_lock lock(census_.mutex_);
  if (!asked_.load(std::memory_order_relaxed)) return;
  asked_.store(false, std::memory_order_relaxed);
  standing_ = std::move(standing);
  census_.answered(lock);
}

Sleeper& Census::add(int rank) {
  awake_.fetch_add(1, std::memory_order_relaxed);
  const std::scoped_lock lock(mutex_);
  return sleepers_.emplace_back(*this, rank);
}

Sleeper& Census::add_helper() { return add(Sleeper::kHelper); }

void Census::leave(Sleeper& sleeper) {
  {
    std::unique_lock lock(mutex_);
    sleeper.left_ = true;
    if (sleeper.asked_.exchange(false, std::memory_order_relaxed)) answered(lock);
  }
  one_less();
}

void Census::one_less() {
  if (awake_.fetch_sub(1, std::memory_order_acq_rel) == 1) ask();
}

void Census::ask() {
  if (asks_.load(std::memory_order_acquire)) return;  // possibly re-entered through ring_ below
  const std::scoped_lock lock(mutex_);
  // A rank that has since woken by its own deadline will get here again.
  if (asks_.load(std::memory_order_relaxed) || awake_.load(std::memory_order_acquire) > 0) return;
  for (Sleeper& sleeper : sleepers_) {
    if (!sleeper.is_asked()) continue;
    sleeper.asked_.store(true, std::memory_order_release);
    ++unanswered_;
  }
  asks_.store(unanswered_ > 0, std::memory_order_release);
  for (Sleeper& sleeper : sleepers_)
    if (sleeper.is_asked()) ring_(sleeper.rank_);
}

void Census::answered(std::unique_lock<std::mutex>& lock) {
  if (--unanswered_ > 0) return;
  const std::string all = standings();
  lock.unlock();
  standstill_(all);
}

std::string Census::standings() const {
  struct Place {
    std::string standing, ranks;
    int count = 0;
  };
  std::vector<Place> places;
  for (const Sleeper& sleeper : sleepers_) {
    if (sleeper.rank_ == Sleeper::kHelper) continue;
    const std::string standing = sleeper.left_ ? "has ended" : sleeper.standing_;
    auto here = std::ranges::find(places, standing, &Place::standing);
    if (here == places.end()) here = places.insert(here, {standing, "", 0});
    here->ranks += str_cat(here->count++ == 0 ? "" : ",", sleeper.rank_);
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
