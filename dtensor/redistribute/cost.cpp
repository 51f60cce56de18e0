#include "dtensor/redistribute/cost.h"

#include <algorithm>
#include <limits>

namespace coshard {
namespace {
constexpr double kCopyBytesPerUs = 100'000;  // within one rank's memory
// Cutting a replica moves nothing, yet a strategy that leaves an input alone is to be preferred.
constexpr double kLocal = 1e-3;
}  // namespace

double time_of(bool collective, double bytes_moved, double bytes_copied, const LinkCost& link) {
  return (collective ? link.latency : kLocal) + bytes_moved / link.bytes_per_us +
         bytes_copied / kCopyBytesPerUs;
}

LinkCost slowest(std::span<const LinkCost> links, unsigned dims) {
  if (links.empty()) return {};
  LinkCost slow{0, std::numeric_limits<double>::infinity()};
  for (std::size_t m = 0; m < links.size(); ++m) {
    if ((dims >> m & 1U) == 0) continue;
    slow.latency = std::max(slow.latency, links[m].latency);
    slow.bytes_per_us = std::min(slow.bytes_per_us, links[m].bytes_per_us);
  }
  return slow;
}

double step_cost(Placement from, Placement to, std::int64_t bytes, int ranks) {
  if (from == to) return 0;
  const double infinite = std::numeric_limits<double>::infinity();
  if (to.is_partial())
    return from.is_replicate() && to.reduce != Reduce::Product ? kLocal : infinite;
  if (ranks == 1 || from.is_replicate()) return kLocal;
  const double moved = static_cast<double>(bytes) * (ranks - 1) / ranks;
  if (from.is_partial() && to.is_replicate()) return time_of(true, 2 * moved, 0);
  if (from.is_partial() || to.is_replicate()) return time_of(true, moved, 0);
  return time_of(true, moved / ranks, 0);  // shard to shard
}

}  // namespace coshard
