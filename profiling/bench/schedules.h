#pragma once
// What overlapped linear layers hide of the collectives around them, and backward of the gradients
// of replicas.
#include <coshard/runtime/coro/task.h>
#include "profiling/bench/benches.h"
#include "profiling/bench/timed.h"

namespace coshard::bench {

// Milliseconds until all ranks have come through.
Task<double> time_of(World& world, Task<void> program);

// Adds, for each schedule, E = 1 - (overlapped - compute) / (plain - compute) on an emulated link
// that takes (n-1)/n of the product's time, and the forecasts of the gate.
void measure_schedules(Report& report, const OverlapOptions& options, int ranks);

// Adds the training step of two replicas whose gradients take as long on the emulated link as
// backward takes: reduced after backward, in buckets during backward, and the closed-form best.
void measure_data_parallel(Report& report, const OverlapOptions& options);

}  // namespace coshard::bench
