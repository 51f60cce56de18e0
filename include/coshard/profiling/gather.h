#pragma once
// Brings what each rank has measured to rank 0, from other processes and hosts as well. Called by
// all ranks of the world at the same point of the program, once they have removed their observers.
// Collectives: an all_gather of a number per rank, then a send from each rank to rank 0.
#include <vector>

#include <coshard/profiling/chrome_trace.h>
#include <coshard/profiling/comm_summary.h>
#include <coshard/runtime/launch/world.h>

#pragma GCC visibility push(default)
namespace coshard {

// On rank 0 those of all ranks, in their order; on others none.
Task<std::vector<CommSummary>> gather_summaries(World& world, const CommSummary& mine);
// The same. Times of ranks on other hosts become those of rank 0's clock, to within half of the
// shortest of 8 round trips between the two.
Task<std::vector<ChromeTrace>> gather_traces(World& world, const ChromeTrace& mine);

}  // namespace coshard
#pragma GCC visibility pop
