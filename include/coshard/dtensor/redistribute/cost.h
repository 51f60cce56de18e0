#pragma once
// The cost of moving data, in microseconds of a simple latency-bandwidth model. Used to choose
// between plans and between an operator's strategies; only ratios matter.
#include <span>

#pragma GCC visibility push(default)
namespace coshard {

// The link of a collective over one mesh dimension: us, and bytes per us (10'000 is 10 GB/s).
struct LinkCost {
  double latency = 5;
  double bytes_per_us = 10'000;
  // The slowdown of concurrent GEMMs, as a share of the collective's time: 0 where it is fully
  // hidden, 1 where it is not hidden at all, as where the cores that compute also move the data.
  double contention = 0;
  friend bool operator==(const LinkCost&, const LinkCost&) = default;
};
// For a collective over several mesh dimensions (bit m: dimension m): as slow as the slowest of
// them. No links: LinkCost().
LinkCost slowest(std::span<const LinkCost> links, unsigned dims);

// One step of a plan: whether it issues a collective, the bytes that the busiest rank receives, and
// those it copies in its own memory (packing, unpacking, filling with zeros).
double time_of(bool collective, double bytes_moved, double bytes_copied, const LinkCost& link = {});

}  // namespace coshard
#pragma GCC visibility pop
