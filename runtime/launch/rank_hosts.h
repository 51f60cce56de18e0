#pragma once
// Which rank runs on which host, as a rank of that world knows. Rank's thread.
#include <vector>

#include <coshard/runtime/coro/rank_context.h>

namespace coshard {

// By world rank: the host of rank 0 is 0, the next one 1. Empty: there is one host. Set before the
// rank's program begins.
inline const RankLocal<std::vector<int>> hosts_of_ranks;

}  // namespace coshard
