#pragma once
// What it takes to plan a redistribute for the first time: rows of `coshard bench dispatch`. The
// search alone, which needs no ranks.
#include <vector>

#include "profiling/bench/report.h"

namespace coshard::bench {

// Of random pairs of layouts on four meshes, for a tensor of four dimensions, of even and of uneven
// sizes: microseconds of the median pair, and of the slowest.
std::vector<Result> time_plan_misses();

}  // namespace coshard::bench
