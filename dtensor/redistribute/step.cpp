#include "dtensor/redistribute/step.h"

#include <algorithm>

namespace coshard {
namespace {

using Pieces = std::vector<Ranges>;

const Ranges& of(const Pieces& pieces, int rank) { return pieces[static_cast<std::size_t>(rank)]; }

// Do the pieces `to` of every group along `dim` make up what its ranks, all alike, hold in `from`?
bool partitions(ShardMap& shard_map, const Pieces& from, const Pieces& to, MeshDims dims) {
  for (int rank = 0; rank < shard_map.ranks(); ++rank) {
    std::int64_t count = 0;
    for (const int peer : shard_map.group(rank, dims)) {
      count += count_of(of(to, peer));
      if (common(of(from, rank), of(to, peer)) != count_of(of(to, peer))) return false;
    }
    if (count != count_of(of(from, rank))) return false;
  }
  return true;
}

}  // namespace

std::string_view to_string(StepKind kind) {
  switch (kind) {
    case StepKind::AllGather: return "all_gather";
    case StepKind::AllReduce: return "all_reduce";
    case StepKind::ReduceScatter: return "reduce_scatter";
    case StepKind::AllToAll: return "all_to_all";
    case StepKind::Slice: return "slice";
    case StepKind::ReplicateToPartial: return "to_partial";
    case StepKind::ShardToPartial: return "to_partial";
  }
  return "?";
}

JointReduce reduction_of(const Layout& layout, MeshDims dims, std::span<const int> mesh_shape) {
  int averaged = 1, first = -1;
  bool alike = true;
  for (int m = 0; m < layout.ndim(); ++m) {
    if (!has(dims, m)) continue;
    if (first < 0) first = m;
    alike = alike && layout[m].reduce == layout[first].reduce;
    if (layout[m].reduce == Reduce::Avg) averaged *= mesh_shape[static_cast<std::size_t>(m)];
  }
  if (alike) return {layout[first].reduce, 1};
  return {Reduce::Sum, averaged};
}

bool is_plain(ShardMap& shard_map, const PlanStep& step, std::span<const int> group) {
  // In rank order, each piece begins at or after the end of the previous one.
  const auto ascending = [&](const Pieces& pieces) {
    std::int64_t end = -1;
    for (const int rank : group) {
      if (of(pieces, rank).empty()) continue;
      if (of(pieces, rank).front().begin < end) return false;
      end = of(pieces, rank).back().end;
    }
    return true;
  };
  int changed = 0, gathered = -1, scattered = -1;
  for (int d = 0; d < shard_map.ndim(); ++d) {
    const Pieces& have = shard_map.along(step.from, d);
    const Pieces& want = shard_map.along(step.to, d);
    if (&have == &want) continue;
    ++changed;
    if ((cutting(step.from, d) & step.dims) == step.dims &&
        partitions(shard_map, want, have, step.dims))
      gathered = d;
    else if ((cutting(step.to, d) & step.dims) == step.dims &&
             partitions(shard_map, have, want, step.dims))
      scattered = d;
  }
  const bool gather_fits = gathered >= 0 && ascending(shard_map.along(step.from, gathered));
  const bool scatter_fits = scattered >= 0 && ascending(shard_map.along(step.to, scattered));
  switch (step.kind) {
    case StepKind::AllReduce: return true;
    case StepKind::AllGather: return changed == 1 && gather_fits;
    case StepKind::ReduceScatter: return changed == 1 && scatter_fits;
    case StepKind::AllToAll: return changed == 2 && gather_fits && scatter_fits;
    default: return false;
  }
}

std::string label_of(const PlanStep& step) {
  std::string from, to;
  for (int m = 0; m < step.from.ndim(); ++m) {
    if (step.from[m] == step.to[m]) continue;
    from += str_cat(step.from[m]);
    to += str_cat(step.to[m]);
  }
  return from + "->" + to;
}

}  // namespace coshard
