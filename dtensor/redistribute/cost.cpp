#include <coshard/dtensor/redistribute/cost.h>

#include <algorithm>
#include <limits>

namespace coshard {
namespace {
constexpr double kCopyBytesPerUs = 100'000;  // within one rank's memory
// Slicing a replica moves nothing, but a strategy that leaves an input alone is preferred.
constexpr double kLocal = 1e-3;
}  // namespace

double time_of(bool collective, double bytes_moved, double bytes_copied, const LinkCost& link) {
  return (collective ? link.latency : kLocal) + bytes_moved / link.bytes_per_us +
         bytes_copied / kCopyBytesPerUs;
}

LinkCost slowest(std::span<const LinkCost> links, unsigned dims) {
  if (links.empty()) return {};
  LinkCost slow{0, std::numeric_limits<double>::infinity(), 0};
  for (std::size_t m = 0; m < links.size(); ++m) {
    if ((dims >> m & 1U) == 0) continue;
    slow.latency = std::max(slow.latency, links[m].latency);
    slow.bytes_per_us = std::min(slow.bytes_per_us, links[m].bytes_per_us);
    slow.contention = std::max(slow.contention, links[m].contention);
  }
  return slow;
}

}  // namespace coshard
