#include "dtensor/ops/linear_forecast.h"

#include <algorithm>
#include <cmath>

#include <coshard/runtime/cost/link.h>

namespace coshard {

OverlapCase overlap_case(const LinearShape& shape, ScheduleKind kind, const GemmModel& gemm,
                         const Link& link, const std::optional<Link>& rounds) {
  OverlapCase c;
  c.ranks = shape.ranks;
  c.rows = shape.rows;
  c.gemm = gemm;
  c.n = shape.cut == 0 ? (shape.out + shape.ranks - 1) / shape.ranks : shape.out;
  c.k = shape.cut == 1 ? (shape.in + shape.ranks - 1) / shape.ranks : shape.in;
  const std::int64_t width = kind == ScheduleKind::Gather ? shape.in : shape.out;
  const auto bytes =
      static_cast<double>(shape.rows * width) * static_cast<double>(size_of(shape.dtype));
  c.latency_ns = link.latency_ns();
  c.shard_ns = link.transfer_ns(bytes);
  if (rounds && kind == ScheduleKind::Gather)
    c.round_ns = std::max<std::int64_t>(1, rounds->latency_ns() + rounds->transfer_ns(bytes));
  c.contention_x1024 = std::llround(link.contention * 1024);
  return c;
}

Schedule schedule_of(ScheduleKind kind, const OverlapCase& of, Overlap overlap) {
  switch (kind) {
    case ScheduleKind::Gather: return gather_schedule(of, overlap);
    case ScheduleKind::Scatter: return scatter_schedule(of, overlap);
    case ScheduleKind::Reduce: return reduce_schedule(of, overlap);
  }
  return {};
}

}  // namespace coshard
