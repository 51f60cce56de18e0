#pragma once
// A trace of two ranks, small enough to reckon with.
#include <vector>

#include "profiling/overlap/overlap_report.h"

namespace coshard::testing {

// Rank 0: 100 ms, of which 60 compute; 40 communicate, 10 of which it awaits. Rank 1 awaits all 20
// of 100.
inline std::vector<overlap::RankTrace> small_trace() {
  using overlap::TraceEvent;
  using Kind = TraceEvent::Kind;
  constexpr std::int64_t kMs = 1'000'000;
  const TraceEvent step{Kind::Range, {0, 100 * kMs}, "step 2", "", "", "", 0};
  const TraceEvent inner{Kind::Range, {10 * kMs, 20 * kMs}, "backward", "", "", "", 0};
  const auto kernel = [](std::int64_t begin, std::int64_t end, const char* module) {
    return TraceEvent{Kind::Kernel, {begin * kMs, end * kMs}, "matmul", module, "", "", 0};
  };
  const auto gather = [](Kind kind, std::int64_t begin, std::int64_t end) {
    return TraceEvent{
        kind,     {begin * kMs, end * kMs}, "all_gather S(0)->R", "layers.0", "tp", "a.cpp:7",
        3'000'000};
  };
  return {{0,
           "20us,1GB/s",
           0,
           {step, inner, kernel(0, 60, "layers.0"), gather(Kind::Await, 60, 70),
            gather(Kind::Collective, 30, 70)}},
          {1,
           "20us,1GB/s",
           5,
           {step, kernel(20, 100, "layers.1"), gather(Kind::Await, 0, 20),
            gather(Kind::Collective, 0, 20)}}};
}

}  // namespace coshard::testing
