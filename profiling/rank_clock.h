#pragma once
// The clock a rank measures with. Rank's thread, or one without a rank.
#include <cstdint>
#include <string>

#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/observer.h>
#include "runtime/host.h"

namespace coshard {

struct RankClock {
  // Equal for ranks that have the same steady clock: those of one boot of one machine.
  std::string id = host_id().substr(0, host_id().find(':'));
  std::int64_t ahead = 0;  // ns; the skew that a test simulates
  std::int64_t now() const { return now_ns() + ahead; }
};

inline const RankLocal<RankClock> rank_clock;

}  // namespace coshard
