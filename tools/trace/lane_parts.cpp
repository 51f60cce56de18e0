#include "tools/trace/lane_parts.h"

#include <algorithm>
#include <map>
#include <utility>

namespace coshard::tools {
namespace {

using overlap::Interval;

class Cutter {
 public:
  explicit Cutter(const TimeSet& stood_still) : stood_still_(stood_still) {}

  void begin(const LaneEvent& event) {
    if (event.time.length() <= 0) return;
    until(event.time.begin);
    under_way_.emplace(event.time.end, event.module);
  }
  std::vector<LanePart> finish() {
    while (!under_way_.empty()) until(under_way_.begin()->first);
    return std::move(parts_);
  }

 private:
  // Cuts at `time`, and where an event ends before.
  void until(std::int64_t time) {
    while (!under_way_.empty()) {
      const std::int64_t end = std::min(time, under_way_.begin()->first);
      if (end > at_) cut({at_, end});
      at_ = end;
      if (under_way_.begin()->first > time) break;
      under_way_.erase(under_way_.begin());
    }
    at_ = time;
  }
  // By where the rank stood still.
  void cut(const Interval& time) {
    std::set<std::string> modules;
    for (const auto& [end, module] : under_way_) modules.insert(module);
    std::int64_t at = time.begin;
    const TimeSet part = stood_still_.within(time);
    for (const Interval& still : part.intervals()) {
      add({{at, still.begin}, modules, false});
      add({still, modules, true});
      at = still.end;
    }
    add({{at, time.end}, std::move(modules), false});
  }
  void add(LanePart part) {
    if (part.time.length() <= 0) return;
    LanePart* last = parts_.empty() ? nullptr : &parts_.back();
    const bool same = last != nullptr && last->time.end == part.time.begin &&
                      last->modules == part.modules && last->stood_still == part.stood_still;
    if (same) {
      last->time.end = part.time.end;
    } else {
      parts_.push_back(std::move(part));
    }
  }

  const TimeSet& stood_still_;
  std::multimap<std::int64_t, std::string> under_way_;  // modules of events, by their ends
  std::int64_t at_ = 0;                                 // cut up to here
  std::vector<LanePart> parts_;
};

}  // namespace

std::vector<LanePart> parts_of(std::span<const LaneEvent> events, const TimeSet& stood_still) {
  Cutter cutter(stood_still);
  for (const LaneEvent& event : events) cutter.begin(event);
  return cutter.finish();
}

}  // namespace coshard::tools
