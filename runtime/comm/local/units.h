#pragma once
// How a job is cut into units of work, and the work itself: each unit reads the senders' buffers
// and writes the receivers' buffers. Units write disjoint memory; any rank may do any of them, on
// its own thread.
#include <cstdint>

#include "runtime/comm/local/job.h"

namespace coshard {

// Up to this many bytes, over all ranks, the last rank to arrive does the whole job at once.
// Measured: waking a helper costs 5 to 50 us, in which one core moves more than this.
constexpr std::int64_t kOneShotBytes = 128 * 1024;
// Bytes of one rank's buffer per unit: several units per rank for balance, each well inside L2.
constexpr std::int64_t kUnitBytes = 128 * 1024;

bool is_one_shot(const Collective& args, int ranks, int rank);
// Sets units, chunk and per_target of a job whose ranks have all arrived.
void plan_units(Job& job, int ranks);
void run_unit(const Job& job, int ranks, std::uint32_t unit);
// The shard or block that `source` has for `target`: all_gather, scatter, all_to_all.
void copy_pair(const Job& job, int ranks, int source, int target);

}  // namespace coshard
