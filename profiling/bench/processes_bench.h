#pragma once
// `coshard bench redistribute` where a launcher has started several processes.
#include <string>

#include <coshard/runtime/launch/world.h>
#include "profiling/bench/report.h"
#include "runtime/launch/roster.h"

namespace coshard::bench {

// Called in all processes, one rank in each. The figures are those of rank 0, and only its process
// has any. `peer`: path of bench_pytorch.py, which runs first; empty: without.
void bench_processes(Report& report, WorldOptions options, const Processes& several,
                     const std::string& peer = {});

}  // namespace coshard::bench
