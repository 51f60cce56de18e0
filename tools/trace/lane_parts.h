#pragma once
// What the page draws of a lane: its events cut into disjoint parts. Values.
#include <set>
#include <span>
#include <string>
#include <vector>

#include "profiling/overlap/trace_file.h"

namespace coshard::tools {

struct LanePart {
  overlap::Interval time;
  std::set<std::string> modules;  // of the events there; "" is outside any
  bool stood_still = false;       // the rank, throughout; else nowhere
  bool operator==(const LanePart&) const = default;
};

struct LaneEvent {
  overlap::Interval time;
  std::string module;
};

// In ascending order, and together the union of the events, which are in order of begin.
std::vector<LanePart> parts_of(std::span<const LaneEvent> events, const TimeSet& stood_still);

}  // namespace coshard::tools
