#pragma once
// What processes tell each other of announced collectives (announcements.h). `rank` and `to` are
// ranks of the group with the key `group`: who says it, and to whom. Values.
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <coshard/runtime/comm/communicator.h>
#include "runtime/comm/local/host/collective_op.h"

namespace coshard {

// `rank` has issued its collective `number`; `to` is its successor.
struct Announced {
  std::uint64_t group = 0, number = 0;
  int rank = 0, to = 0;
  Print print;
  Collective args;  // without buffers, callbacks, and what a launch issues
};
// `rank` has compared the first `count` collectives of `to`, its predecessor.
struct Acknowledged {
  std::uint64_t group = 0, count = 0;
  int rank = 0, to = 0;
};
// How many has `to` issued, and what is its collective `number`? Of a launch, where the fingerprints
// are given: the first in it that has another one.
struct Asked {
  std::uint64_t group = 0, number = 0;
  int rank = 0, to = 0;
  std::vector<std::uint64_t> prints;
};
// Also told unasked, of a flat all_to_all, since its counts match in pairs.
struct Answered {
  std::uint64_t group = 0, number = 0;
  int rank = 0, to = 0;
  std::uint64_t count = 0;  // issued by `rank`
  CollectiveKind kind{};    // of the last of these
  std::int64_t age_ns = 0;  // since it was issued
  std::string place;        // " at train.cpp:88"
  bool known = false;       // `rank` has kept what was asked for:
  std::int64_t part = -1;   // the index in a launch; -1: it is the collective itself
  Print print;
  Collective args;
};
using Announcement = std::variant<Announced, Acknowledged, Asked, Answered>;

}  // namespace coshard
