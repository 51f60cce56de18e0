#include "profiling/overlap/time_set.h"

#include <algorithm>

namespace coshard::overlap {

TimeSet::TimeSet(std::vector<Interval> intervals) {
  std::ranges::sort(intervals, {}, &Interval::begin);
  for (const Interval& next : intervals) {
    if (next.length() <= 0) continue;
    if (intervals_.empty() || intervals_.back().end < next.begin) {
      intervals_.push_back(next);
    } else {
      intervals_.back().end = std::max(intervals_.back().end, next.end);
    }
  }
}

std::int64_t TimeSet::length() const {
  std::int64_t sum = 0;
  for (const Interval& one : intervals_) sum += one.length();
  return sum;
}

TimeSet TimeSet::minus(const TimeSet& other) const {
  TimeSet left;
  for (Interval rest : intervals_) {
    auto cut = std::ranges::upper_bound(other.intervals_, rest.begin, {}, &Interval::end);
    for (; cut != other.intervals_.end() && cut->begin < rest.end; ++cut) {
      if (rest.begin < cut->begin) left.intervals_.push_back({rest.begin, cut->begin});
      rest.begin = cut->end;
    }
    if (rest.begin < rest.end) left.intervals_.push_back(rest);
  }
  return left;
}

TimeSet TimeSet::united(const TimeSet& other) const {
  std::vector<Interval> all = intervals_;
  all.insert(all.end(), other.intervals_.begin(), other.intervals_.end());
  return TimeSet(std::move(all));
}

}  // namespace coshard::overlap
