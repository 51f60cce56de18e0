#pragma once
// Whether the gate ever loses: drawn shapes and emulated links, each layer plain and as the gate
// chooses, in interleaved pairs. Called from a thread that runs no executor.
#include <vector>

#include "profiling/bench/benches.h"

namespace coshard::bench {

// Adds how many of 3 * options.draws layers overlap, and of those the least and the median speed-up,
// the least lower bound of one (of its median, one-sided, 95 %), and how many are proven to be
// below 0.98: whose upper bound is. What stays plain is the same code, and is not timed.
void measure_draws(Report& report, const OverlapOptions& options);

// One-sided bounds of the median at 95 %, by order statistics; of fewer than 5 samples, the least
// and the largest.
struct MedianBounds {
  double low = 0, high = 0;
};
MedianBounds median_bounds(std::vector<double> samples);

}  // namespace coshard::bench
