#pragma once
// The time to plan a redistribute for the first time: rows of `coshard bench dispatch`. Only the
// search, which needs no ranks.
#include <vector>

#include "profiling/bench/report.h"

namespace coshard::bench {

// For random pairs of layouts on four meshes, and tensors of four dimensions with even and uneven
// sizes: microseconds for the median pair and for the slowest.
std::vector<Result> time_plan_misses();

}  // namespace coshard::bench
