#pragma once
// Checks that the gate never loses: random shapes and emulated links, each layer as the gate chooses
// and as it does not, in interleaved pairs. Call from a thread that runs no executor.
#include <string>
#include <vector>

#include "profiling/bench/benches.h"

namespace coshard::bench {

// Of 3 * options.draws layers, those that the gate overlaps (gate_*, beside the plain
// schedule) and those that it leaves plain (gate_plain_*, beside the overlapped one): how many, the
// least and the median speed-up of its choice, the least lower bound of a median speed-up
// (one-sided, 95 %), and how many have an upper bound below 0.98.
void measure_draws(Report& report, const OverlapOptions& options);
// The same of the speed-ups of each of these layers; without any there is no speed-up: NaN.
void add_speedups(Report& report, const std::string& prefix,
                  const std::vector<std::vector<double>>& layers);

// One-sided 95 % bounds of the median, by order statistics; for fewer than 5 samples, the smallest
// and the largest.
struct MedianBounds {
  double low = 0, high = 0;
};
MedianBounds median_bounds(std::vector<double> samples);

}  // namespace coshard::bench
