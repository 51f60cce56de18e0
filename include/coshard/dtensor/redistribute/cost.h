#pragma once
// What moving data costs, in microseconds of a simple latency-bandwidth model. Used to choose
// between plans and between an operator's strategies; relations matter, not the unit.
#include <span>

namespace coshard {

// What a collective over one mesh dimension has: us, and bytes per us (10'000 are 10 GB/s).
struct LinkCost {
  double latency = 5;
  double bytes_per_us = 10'000;
  friend bool operator==(const LinkCost&, const LinkCost&) = default;
};
// Of a collective over several mesh dimensions (bit m: dimension m): as slow as the slowest of
// them. No links: LinkCost().
LinkCost slowest(std::span<const LinkCost> links, unsigned dims);

// One step of a plan: whether it issues a collective, the bytes that the busiest rank receives, and
// those that it copies within its own memory (packing, unpacking, filling with zeros).
double time_of(bool collective, double bytes_moved, double bytes_copied, const LinkCost& link = {});

}  // namespace coshard
