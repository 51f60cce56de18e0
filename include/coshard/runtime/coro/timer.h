#pragma once
// A point in time at which an executor does something; virtual time in a simulation. Lives with its
// owner, on the executor's thread.
#include <cstdint>
#include <map>

#pragma GCC visibility push(default)
namespace coshard {

class Timer;
// By due time; among equal ones, in the order in which they were armed.
using Timers = std::multimap<std::int64_t, Timer*>;

class Timer {
 public:
  virtual void due() = 0;
  // `timers` outlives it, or is cleared by disarm_all().
  void arm(Timers& timers, std::int64_t due_ns) {
    disarm();
    place_ = timers.emplace(due_ns, this);
    timers_ = &timers;
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
#pragma GCC visibility pop
