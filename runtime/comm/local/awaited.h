#pragma once
// A collective that somebody waits for, as error messages name it.
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/call_site.h"
#include "runtime/comm/local/fabric.h"
#include "runtime/observer.h"

namespace coshard {

struct Collective;

struct Awaited {
  Awaited(const Collective& collective, std::uint64_t number, int world_rank);
  std::string text(
      const LocalGroup& group) const;  // "all_gather #41 on tp[4] (S(0)->R) at train.cpp:88"
  // `missing`: "arrived: 0; missing: 1 (...)".
  std::string timeout_text(const LocalGroup& group, std::int64_t waited_ns,
                           std::string_view missing) const;
  // `lost`: the rank that left.
  std::string lost_text(LocalGroup& group, int lost) const;
  PeerFailure poisoned(const LocalGroup& group) const;

  CollectiveKind kind;
  std::string_view label;
  Place place;
  std::uint64_t number;
  std::uint64_t branch;
  int world_rank;
};

}  // namespace coshard
