#pragma once
// The cost of an emulated link, for the planner and the gate, and a forecast in whole ns.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include <coshard/dtensor/redistribute/cost.h>
#include <coshard/runtime/comm/link.h>

namespace coshard {

inline LinkCost cost_of(const Link& link) {
  return {static_cast<double>(link.latency.count()) * 1e-3, link.bytes_per_second * 1e-6};
}

// At most 1e15, 11 days, so that sums of forecasts do not overflow.
inline std::int64_t whole_ns(double ns) { return std::llround(std::min(ns, 1e15)); }

}  // namespace coshard
