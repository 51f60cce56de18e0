#pragma once
// Sets of times, from which all figures of overlap are computed. Values.
#include <cstddef>
#include <cstdint>
#include <vector>

#pragma GCC visibility push(default)
namespace coshard {

class TimeSet {
 public:
  struct Interval {
    std::int64_t begin = 0, end = 0;  // ns
    std::int64_t length() const { return end - begin; }
    bool operator==(const Interval&) const = default;
  };

  TimeSet() = default;
  // The union of intervals in any order, which may overlap and nest; empty ones are ignored.
  explicit TimeSet(std::vector<Interval> intervals);

  // Disjoint, ascending and not adjacent.
  const std::vector<Interval>& intervals() const { return intervals_; }
  std::int64_t length() const;
  TimeSet minus(const TimeSet& other) const;
  TimeSet united(const TimeSet& other) const;
  TimeSet common(const TimeSet& other) const;
  TimeSet within(const Interval& bounds) const;

  // Both return how much of what they add was not in the set. Fast near its end.
  std::int64_t add(const Interval& interval);
  std::int64_t add(const TimeSet& other);

  // Forgets what ends before `earliest()`, which is asked when the set has doubled. Keeps 64
  // intervals or more, and at most 65536.
  template <class Earliest>
  void forget(const Earliest& earliest) {
    if (intervals_.size() >= look_at_) forget_before(earliest());
  }

 private:
  void forget_before(std::int64_t time);

  std::vector<Interval> intervals_;
  std::size_t look_at_ = 128;
};

}  // namespace coshard
#pragma GCC visibility pop
