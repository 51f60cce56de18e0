#pragma once
// The cost of an emulated link, for the planner and the gate.
#include <coshard/dtensor/redistribute/cost.h>
#include <coshard/runtime/comm/link.h>

namespace coshard {

inline LinkCost cost_of(const Link& link) {
  return {static_cast<double>(link.latency.count()) * 1e-3, link.bytes_per_second * 1e-6};
}

}  // namespace coshard
