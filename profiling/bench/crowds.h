#pragma once
// The cost of many ranks on few cores: rows of `coshard bench dispatch`. On the CPU; communicator
// local.
#include "profiling/bench/report.h"

namespace coshard::bench {

// Microseconds of a barrier of ranks with a thread each.
Result time_barrier(int ranks);
// Seconds that `ranks` ranks on `threads` threads take for 100 all_reduces of one element,
// including their start and end.
Result time_sums_on_shared_threads(int ranks, int threads);

}  // namespace coshard::bench
