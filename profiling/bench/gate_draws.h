#pragma once
// Checks that the gate never loses: random shapes and emulated links, each layer plain and as the
// gate chooses, in interleaved pairs. Call from a thread that runs no executor.
#include <vector>

#include "profiling/bench/benches.h"

namespace coshard::bench {

// Adds how many of 3 * options.draws layers overlap and, of those, the least and the median
// speed-up, the least lower bound of a median speed-up (one-sided, 95 %), and how many have an
// upper bound below 0.98. Layers that stay plain run the same code, and are not timed.
void measure_draws(Report& report, const OverlapOptions& options);
// The same of the speed-ups of each layer that overlaps; without any there is no speed-up: NaN.
void add_speedups(Report& report, const std::vector<std::vector<double>>& layers);

// One-sided 95 % bounds of the median, by order statistics; for fewer than 5 samples, the smallest
// and the largest.
struct MedianBounds {
  double low = 0, high = 0;
};
MedianBounds median_bounds(std::vector<double> samples);

}  // namespace coshard::bench
