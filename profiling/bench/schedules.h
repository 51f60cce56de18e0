#pragma once
// How much of their collectives overlapped linear layers hide, and how much of the reduction of
// replicas' gradients backward hides.
#include <cstdint>
#include <string>
#include <vector>

#include <coshard/runtime/coro/task.h>
#include "profiling/bench/benches.h"
#include "profiling/bench/timed.h"

namespace coshard::bench {

// Milliseconds until all ranks have finished.
Task<double> time_of(World& world, Task<void> program);

constexpr std::int64_t kLayerIn = 512, kLayerOut = 1024;  // rows set a layer's duration
// For a collective as long as the GEMM next to it; an all_reduce has 8 pieces; the last is exposed.
constexpr double efficiency_goal(bool all_reduce) { return all_reduce ? 1 - 1.0 / 8 - 0.03 : 0.97; }

// Times with every collective awaited at once, with the schedule, and without collectives.
struct ScheduleRound {
  double plain_ms = 0, overlapped_ms = 0, compute_ms = 0;
};
// E = 1 - (overlapped - compute) / (plain - compute). NaN: not measurable, since plain takes no
// longer than compute, or E is above 1.05: no schedule hides more than all, such a figure is noise.
double efficiency_of(double plain_ms, double overlapped_ms, double compute_ms);
// Adds PREFIX_{plain,overlapped,compute,efficiency}_N_ranks, the last of the medians of these
// rounds; also copies, the time that collectives take of the cores, from rounds `without_link`, and
// link_efficiency, that of the remaining time: where ranks compute on all cores, nothing hides a
// copy.
void add_schedule(Report& report, const std::string& prefix, int ranks,
                  const std::vector<ScheduleRound>& rounds,
                  const std::vector<ScheduleRound>& without_link, double efficiency);
double compute_ms_of(const std::vector<ScheduleRound>& rounds);

// Adds, for each schedule, the efficiency on an emulated link that takes (n-1)/n of the GEMM's
// time, and the gate's forecasts.
void measure_schedules(Report& report, const OverlapOptions& options, int ranks);

// The same for the gradients of a layer. Plain: every collective is awaited before the next GEMM.
void measure_backward_schedules(Report& report, const OverlapOptions& options, int ranks);

// Adds a step (forward, loss and backward) of the Transformer with sequence parallelism, on a link
// on which its collectives take (n-1)/n of its GEMMs' time, and the closed-form optimum.
void measure_transformer(Report& report, const OverlapOptions& options, int ranks);
// Adds the training step of two replicas whose gradients take as long on the emulated link as
// backward takes: reduced after backward, in buckets during backward, and the closed-form optimum.
void measure_data_parallel(Report& report, const OverlapOptions& options);

}  // namespace coshard::bench
