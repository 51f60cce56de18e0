#include "tests/support/fake_cuda/fake_races.h"

#include <algorithm>

namespace coshard::testing {

bool FakeClock::covers(int stream, std::uint64_t number) const {
  const auto found = std::ranges::lower_bound(ends_, stream, {}, [](auto& e) { return e.first; });
  return found != ends_.end() && found->first == stream && found->second >= number;
}

void FakeClock::add(int stream, std::uint64_t number) {
  const auto found = std::ranges::lower_bound(ends_, stream, {}, [](auto& e) { return e.first; });
  if (found == ends_.end() || found->first != stream) {
    ends_.insert(found, {stream, number});
  } else {
    found->second = std::max(found->second, number);
  }
}

void FakeClock::add(const FakeClock& other) {
  for (const auto& [stream, number] : other.ends_) add(stream, number);
}

FakeRaces::Place FakeRaces::cut(Address at) {
  const Place after = memory_.lower_bound(at);
  if (after == memory_.begin() || (after != memory_.end() && after->first == at)) return after;
  const Place before = std::prev(after);
  if (before->second.end <= at) return after;
  const Place rest = memory_.emplace_hint(after, at, before->second);
  before->second.end = at;
  return rest;
}

// Finds the first unordered pair, with all its adjacent bytes.
void FakeRaces::look(Race& race, const Access& earlier, bool writes, const FakeClock& clock,
                     Place at) {
  if (earlier.what == nullptr || earlier.stream == race.second.stream ||
      clock.covers(earlier.stream, earlier.number))
    return;
  const auto& [begin, segment] = *at;
  if (race.begin == nullptr) {
    race.first = earlier;
    race.first_writes = writes;
    race.begin = begin;
    race.end = segment.end;
  } else if (race.first.same_op(earlier) && race.first_writes == writes && race.end == begin) {
    race.end = segment.end;
  }
}

void FakeRaces::read(const Access& by, const FakeClock& clock, const void* data,
                     std::size_t bytes) {
  if (bytes == 0) return;
  const auto* begin = static_cast<Address>(data);
  const auto* end = begin + bytes;
  cut(begin);
  cut(end);
  Race race{.second = by};
  for (Address at = begin; at < end;) {
    const Place next = memory_.lower_bound(at);
    if (next == memory_.end() || next->first > at) {  // bytes without accesses so far
      const Address gap = next == memory_.end() ? end : std::min(end, next->first);
      memory_.emplace_hint(next, at, Segment{gap, {}, {by}});
      at = gap;
      continue;
    }
    Segment& segment = next->second;
    look(race, segment.write, true, clock, next);
    const auto mine = std::ranges::find(segment.reads, by.stream, &Access::stream);
    mine == segment.reads.end() ? segment.reads.push_back(by) : void(*mine = by);
    at = segment.end;
  }
  if (race.begin != nullptr && on_race) on_race(race);
}

void FakeRaces::write(const Access& by, const FakeClock& clock, const void* data,
                      std::size_t bytes) {
  if (bytes == 0) return;
  const auto* begin = static_cast<Address>(data);
  Race race{.second = by, .second_writes = true};
  Place at = cut(begin);
  const Place last = cut(begin + bytes);
  while (at != last) {
    look(race, at->second.write, true, clock, at);
    for (const Access& read : at->second.reads) look(race, read, false, clock, at);
    at = memory_.erase(at);
  }
  memory_.emplace_hint(last, begin, Segment{begin + bytes, by, {}});
  if (race.begin != nullptr && on_race) on_race(race);
}

void FakeRaces::forget(const void* data, std::size_t bytes) {
  const auto* begin = static_cast<Address>(data);
  const Place first = cut(begin);
  memory_.erase(first, cut(begin + bytes));
}

namespace {

std::string to_string(const FakeRaces::Access& access) {
  return std::string(access.what) + " on stream " + std::to_string(access.stream) +
         " of cuda:" + std::to_string(access.device);
}

}  // namespace

std::string to_string(const FakeRaces::Race& race, const void* where, std::size_t bytes) {
  const auto* base = static_cast<const char*>(where);
  return "race: " + to_string(race.second) + (race.second_writes ? " writes" : " reads") +
         " bytes [" + std::to_string(race.begin - base) + ", " + std::to_string(race.end - base) +
         ") of the " + std::to_string(bytes) + " that begin at " +
         std::to_string(reinterpret_cast<std::uintptr_t>(where)) +
         ", and no event orders it after " + to_string(race.first) + ", which " +
         (race.first_writes ? "writes" : "reads") + " them";
}

}  // namespace coshard::testing
