#pragma once
// A linear layer with a collective before or after it, as the gate sees it: without tensors, so
// that it can be evaluated for a model that is not built. Pure.
#include <cstdint>
#include <optional>

#include <coshard/runtime/cost/link.h>
#include "dtensor/ops/overlap_gate.h"

namespace coshard {

struct LinearShape {
  int ranks = 1;
  std::int64_t rows = 0;         // of the largest of `ranks` shards
  std::int64_t in = 0, out = 0;  // of the whole weight
  int cut = 0;                   // dimension of the weight that is sharded; -1: none
  DType dtype = DType::F32;
};
// Per row, an all_gather carries `in` elements and a reduction `out`. `rounds`: as of round_link.
OverlapCase overlap_case(const LinearShape& shape, ScheduleKind kind, const GemmModel& gemm,
                         const Link& link, const std::optional<Link>& rounds = std::nullopt);
Schedule schedule_of(ScheduleKind kind, const OverlapCase& of, Overlap overlap);

}  // namespace coshard
