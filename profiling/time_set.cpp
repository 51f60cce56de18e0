#include <coshard/profiling/time_set.h>

#include <algorithm>

namespace coshard {

TimeSet::TimeSet(std::vector<Interval> intervals) {
  std::ranges::sort(intervals, {}, &Interval::begin);
  for (const Interval& next : intervals) add(next);
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

TimeSet TimeSet::common(const TimeSet& other) const {
  TimeSet both;
  for (const Interval& one : other.intervals_) both.add(within(one));
  return both;
}

TimeSet TimeSet::within(const Interval& bounds) const {
  TimeSet part;
  if (bounds.length() <= 0) return part;
  auto each = std::ranges::upper_bound(intervals_, bounds.begin, {}, &Interval::end);
  for (; each != intervals_.end() && each->begin < bounds.end; ++each)
    part.intervals_.push_back(
        {std::max(bounds.begin, each->begin), std::min(bounds.end, each->end)});
  return part;
}

std::int64_t TimeSet::add(const Interval& interval) {
  if (interval.length() <= 0) return 0;
  const auto first = std::ranges::lower_bound(intervals_, interval.begin, {}, &Interval::end);
  auto after = first;
  std::int64_t known = 0;
  Interval joined = interval;
  for (; after != intervals_.end() && after->begin <= interval.end; ++after) {
    known += std::min(interval.end, after->end) - std::max(interval.begin, after->begin);
    joined = {std::min(joined.begin, after->begin), std::max(joined.end, after->end)};
  }
  intervals_.insert(intervals_.erase(first, after), joined);
  return interval.length() - known;
}

std::int64_t TimeSet::add(const TimeSet& other) {
  std::int64_t added = 0;
  for (const Interval& each : other.intervals_) added += add(each);
  return added;
}

void TimeSet::forget_before(std::int64_t time) {
  constexpr std::ptrdiff_t kLeast = 64, kMost = 1 << 16;  // most: if one is never awaited
  const auto from = std::ranges::lower_bound(intervals_, time, {}, &Interval::end);
  const std::ptrdiff_t kept = std::clamp(intervals_.end() - from, kLeast, kMost);
  if (std::ssize(intervals_) > kept) intervals_.erase(intervals_.begin(), intervals_.end() - kept);
  look_at_ = 2 * static_cast<std::size_t>(kept);
}

}  // namespace coshard
