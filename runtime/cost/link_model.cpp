#include "runtime/cost/link_model.h"

#include <algorithm>

#include <coshard/runtime/cost/link.h>
#include "runtime/comm/collective.h"
#include "runtime/device/sim/limits.h"

namespace coshard {

double LinkModel::best_rate() const {
  double best = 0;
  for (const LinkProtocol& p : protocols) best = std::max(best, p.rate);
  return best;
}

namespace {

int ring_steps(CollectiveKind kind, int ranks) {
  switch (kind) {
    case CollectiveKind::AllReduce: return 2 * (ranks - 1);
    case CollectiveKind::Send:
    case CollectiveKind::Recv: return 1;
    case CollectiveKind::AllGather:
    case CollectiveKind::ReduceScatter:
    case CollectiveKind::AllToAll:
    case CollectiveKind::Broadcast:
    case CollectiveKind::Scatter:
    case CollectiveKind::Barrier: return ranks - 1;
  }
  return 0;
}

struct Moved {
  std::int64_t bytes = 0;
  int steps = 0;
};

// One direction of an all_to_all with counts.
Moved to_others(const Counts& counts, int rank, DType dtype) {
  Moved moved;
  for (std::size_t peer = 0; peer < counts->size(); ++peer) {
    if (static_cast<int>(peer) == rank || (*counts)[peer] == 0) continue;
    moved.bytes += (*counts)[peer] * static_cast<std::int64_t>(size_of(dtype));
    ++moved.steps;
  }
  return moved;
}

Moved moved_by(const Collective& c, int ranks, int rank) {
  if (!c.send_counts || !c.recv_counts)
    return {algorithmic_bytes(c, ranks, larger_bytes(c, ranks, rank)), ring_steps(c.kind, ranks)};
  const Moved sent = to_others(c.send_counts, rank, c.dtype);
  const Moved received = to_others(c.recv_counts, rank, c.dtype);
  return {std::max(sent.bytes, received.bytes), std::max(sent.steps, received.steps)};
}

}  // namespace

LinkTime link_time(const LinkModel& link, const Collective& collective, int ranks, int rank) {
  LinkTime best;
  if (ranks < 2) return best;
  const Moved moved = moved_by(collective, ranks, rank);
  bool first = true;
  for (const LinkProtocol& p : link.protocols) {
    const LinkTime time{counted_ns(p.base_ns + moved.steps * p.step_ns),
                        counted_ns(static_cast<double>(moved.bytes) / p.rate * 1e9)};
    if (first || time.total() < best.total()) best = time;
    first = false;
  }
  return best;
}

}  // namespace coshard
