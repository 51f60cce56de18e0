#include "runtime/comm/local/awaited.h"

#include <cstdio>

#include "runtime/comm/collective.h"
#include "runtime/comm/local/group.h"

namespace coshard {

Awaited::Awaited(const Collective& collective, std::uint64_t of, int rank)
    : kind(collective.kind),
      label(collective.label),
      place{collective.where, collective.operation, collective.module},
      number(of),
      branch(collective.branch),
      world_rank(rank) {}

std::string Awaited::text(const LocalGroup& group) const {
  return cat(to_string(kind), " #", number, " on ", group.title(),
             label.empty() ? "" : cat(" (", label, ")"), place_text(place));
}

std::string Awaited::timeout_text(const LocalGroup& group, std::int64_t waited_ns,
                                  std::string_view missing) const {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f", static_cast<double>(waited_ns) / 1e9);
  return cat("timeout after ", seconds, " s on rank ", world_rank, " waiting for ", text(group),
             "; ", missing);
}

std::string Awaited::lost_text(LocalGroup& group, int lost) const {
  const std::uint64_t count = group.state(lost).issued.load();
  const std::string after =
      count > 0 ? cat(" after #", count - 1) : std::string(" before its first collective");
  return cat("rank ", group.members()[static_cast<std::size_t>(lost)], " left", after, " and ",
             text(group), " waits for it");
}

PeerFailure Awaited::poisoned(const LocalGroup& group) const {
  return PeerFailure(cat(text(group), " on rank ", world_rank, " failed: ", group.cause()));
}

}  // namespace coshard
