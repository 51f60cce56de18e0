#pragma once
// A point in time at which an executor does something; in virtual time in a simulation. Lives where
// its owner is, on the executor's thread.
#include <cstdint>
#include <map>

namespace coshard {

class Timer;
// By due time; of equal ones the one that was armed first comes first.
using Timers = std::multimap<std::int64_t, Timer*>;

class Timer {
 public:
  virtual void due() = 0;
  // `timers` outlives it, or is cleared by disarm_all().
  void arm(Timers& timers, std::int64_t due_ns) {
    disarm();
    timers_ = &timers;
    place_ = timers.emplace(due_ns, this);
  }
  void disarm() noexcept {
    if (timers_ == nullptr) return;
    timers_->erase(place_);
    timers_ = nullptr;
  }
  static void disarm_all(Timers& timers) noexcept {
    while (!timers.empty()) timers.begin()->second->disarm();
  }

 protected:
  Timer() = default;
  ~Timer() { disarm(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  Timers* timers_ = nullptr;
  Timers::iterator place_;
};

}  // namespace coshard
