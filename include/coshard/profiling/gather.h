#pragma once
// Gathers every rank's measurements on rank 0, across processes and hosts. Called by all ranks of
// the world at the same point of the program, once they have removed their observers; on a GPU,
// after synchronize(), by which it has told of everything. Costs an all_gather of one number per
// rank and a send from each rank to rank 0.
#include <cstdint>
#include <vector>

#include <coshard/profiling/chrome_trace.h>
#include <coshard/profiling/comm_summary.h>
#include <coshard/runtime/launch/world.h>

#pragma GCC visibility push(default)
namespace coshard {

// On rank 0, the summaries of all ranks in rank order; empty on other ranks.
Task<std::vector<CommSummary>> gather_summaries(World& world, const CommSummary& mine);
// The same for traces. Times of ranks on other hosts are converted to rank 0's clock; the error is
// at most half of the shortest of 8 round trips between the two.
Task<std::vector<ChromeTrace>> gather_traces(World& world, const ChromeTrace& mine);
// On every rank, the ns to add to its clock to get rank 0's, measured in the same way; 0 for a rank
// on the host of rank 0. For traces that each process writes to a file of its own.
Task<std::int64_t> clock_offset(World& world);

}  // namespace coshard
#pragma GCC visibility pop
