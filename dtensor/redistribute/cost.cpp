#include "dtensor/redistribute/cost.h"

#include <limits>

namespace coshard {
namespace {
constexpr double kLatency = 5;          // us per collective
constexpr double kBytesPerUs = 10'000;  // 10 GB/s
// Cutting a replica moves nothing, yet a strategy that leaves an input alone is to be preferred.
constexpr double kLocal = 1e-3;
}  // namespace

double step_cost(Placement from, Placement to, std::int64_t bytes, int ranks) {
  if (from == to) return 0;
  const double infinite = std::numeric_limits<double>::infinity();
  if (to.is_partial())
    return from.is_replicate() && to.reduce != Reduce::Product ? kLocal : infinite;
  if (ranks == 1) return kLocal;
  const double move = static_cast<double>(bytes) / kBytesPerUs * (ranks - 1) / ranks;
  if (from.is_replicate()) return kLocal;
  if (from.is_partial()) return to.is_replicate() ? kLatency + 2 * move : kLatency + move;
  if (to.is_replicate()) return kLatency + move;
  return kLatency + move / ranks;  // shard to shard
}

}  // namespace coshard
