#pragma once
// How much of a training step's collectives weaving two half-batches hides.
#include "profiling/bench/benches.h"

namespace coshard::bench {

// Adds, for forward and backward of a stack of tensor-parallel MLPs, whole and as woven(model, 2),
// the efficiency (schedules.h) on an emulated link that takes (n-1)/n of the computing time.
void measure_woven(Report& report, const OverlapOptions& options, int ranks);

}  // namespace coshard::bench
