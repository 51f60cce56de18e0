#pragma once
// The host of each rank of the world. Rank's thread.
#include <vector>

#include <coshard/runtime/coro/rank_context.h>

namespace coshard {

// By world rank; hosts are numbered from 0, in order of their first ranks. Empty: a single host.
// Set before the rank's program begins.
inline const RankLocal<std::vector<int>> hosts_of_ranks;

}  // namespace coshard
