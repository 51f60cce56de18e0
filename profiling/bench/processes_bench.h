#pragma once
// `coshard bench redistribute` in several processes started by a launcher.
#include <string>

#include <coshard/runtime/launch/world.h>
#include "profiling/bench/report.h"
#include "runtime/launch/rank_directory.h"

namespace coshard::bench {

// Called in all processes, one rank in each. Only the process of rank 0 gets results, its own.
// `peer`: path of the PyTorch program, which runs first; empty: no comparison.
void bench_processes(Report& report, WorldOptions options, const Processes& several,
                     const std::string& peer = {});

}  // namespace coshard::bench
