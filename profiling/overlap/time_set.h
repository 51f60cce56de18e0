#pragma once
// Sets of times, from which overlap is computed. Values.
#include <cstdint>
#include <vector>

namespace coshard::overlap {

struct Interval {
  std::int64_t begin = 0, end = 0;  // ns
  std::int64_t length() const { return end - begin; }
  bool operator==(const Interval&) const = default;
};

class TimeSet {
 public:
  TimeSet() = default;
  // The union of intervals in any order, which may overlap and nest; empty ones are ignored.
  explicit TimeSet(std::vector<Interval> intervals);

  // Disjoint, ascending and not adjacent.
  const std::vector<Interval>& intervals() const { return intervals_; }
  std::int64_t length() const;
  TimeSet minus(const TimeSet& other) const;
  TimeSet united(const TimeSet& other) const;

 private:
  std::vector<Interval> intervals_;
};

}  // namespace coshard::overlap
