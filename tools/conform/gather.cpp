#include "tools/conform/gather.h"

#include <cmath>

#include <coshard/dtensor/redistribute/redistribute.h>

namespace coshard::conform {
namespace {

std::vector<int> coordinate_of(int index, const std::vector<int>& shape) {
  std::vector<int> coordinate(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    coordinate[d] = index % shape[d];
    index /= shape[d];
  }
  return coordinate;
}

int index_of(const std::vector<int>& coordinate, const std::vector<int>& shape) {
  int index = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) index = index * shape[d] + coordinate[d];
  return index;
}

// Writes one rank's part to its position in the logical tensor.
void place(const Snapshot& part, const std::vector<int>& coordinate, Full& full) {
  const std::size_t ndim = part.shape.size();
  std::vector<std::vector<std::int64_t>> positions(ndim);
  for (std::size_t d = 0; d < ndim; ++d) {
    for (const Range& range :
         ranges_of(part.layout, part.mesh_shape, coordinate, static_cast<int>(d), part.shape[d]))
      for (std::int64_t i = range.begin; i < range.end; ++i) positions[d].push_back(i);
    CS_REQUIRE(static_cast<std::int64_t>(positions[d].size()) == part.local_shape[d], part.text,
               ": a rank holds ", part.local_shape, ", its layout gives it ", positions[d].size(),
               " in dimension ", d);
  }
  std::vector<std::size_t> index(ndim, 0);
  for (double value : part.values) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < ndim; ++d) at = at * part.shape[d] + positions[d][index[d]];
    full.values[static_cast<std::size_t>(at)] = value;
    for (std::size_t d = ndim; d-- > 0;) {
      if (++index[d] < positions[d].size()) break;
      index[d] = 0;
    }
  }
}

double reduce(Reduce op, double a, double b) {
  switch (op) {
    case Reduce::Sum:
    case Reduce::Avg: return a + b;
    case Reduce::Min: return std::isnan(a) || a < b ? a : b;
    case Reduce::Max: return std::isnan(a) || a > b ? a : b;
    case Reduce::Product: return a * b;
  }
  return a;
}

// The logical tensor with mesh dimensions from `m` on gathered, the others held at `coordinate`.
Full gather_from(const std::vector<Snapshot>& all, const Snapshot& like,
                 std::vector<int> coordinate, int m) {
  if (m == like.layout.ndim()) {
    Full full{like.shape, std::vector<double>(static_cast<std::size_t>(numel(like.shape)), 0)};
    const int index = index_of(coordinate, like.mesh_shape);
    const int rank = like.mesh_ranks[static_cast<std::size_t>(index)];
    const Snapshot& part = all[static_cast<std::size_t>(rank)];
    CS_REQUIRE(part.distributed && part.shape == like.shape && part.layout == like.layout, "rank ",
               rank, " has ", part.text, ", another ", like.text);
    place(part, coordinate, full);
    return full;
  }
  const Placement p = like.layout[m];
  if (p.is_replicate()) return gather_from(all, like, coordinate, m + 1);
  const auto at = static_cast<std::size_t>(m);
  Full result;
  const int n = like.mesh_shape[at];
  for (int i = 0; i < n; ++i) {
    coordinate[at] = i;
    const Full part = gather_from(all, like, coordinate, m + 1);
    if (i == 0) {
      result = part;
      continue;
    }
    // Shards do not overlap, and what a rank lacks is 0.
    for (std::size_t e = 0; e < result.values.size(); ++e)
      result.values[e] =
          reduce(p.is_partial() ? p.reduce : Reduce::Sum, result.values[e], part.values[e]);
  }
  if (p.is_partial() && p.reduce == Reduce::Avg)
    for (double& value : result.values) value /= n;
  return result;
}

}  // namespace

Snapshot snapshot(const Tensor& tensor) {
  Snapshot s;
  s.defined = tensor.defined();
  if (!s.defined) return s;
  s.distributed = tensor.is_distributed();
  s.dtype = tensor.dtype();
  s.local_shape = tensor.local_shape();
  s.text = describe(tensor);
  s.values = tensor.raw_local().to_vector();
  if (!s.distributed) return s;
  s.layout = tensor.layout();
  s.shape = tensor.shape();
  s.mesh_shape = tensor.mesh().shape();
  s.mesh_ranks = tensor.mesh().ranks();
  return s;
}

Full gather(const std::vector<Snapshot>& all, int viewer) {
  const Snapshot& own = all[static_cast<std::size_t>(viewer)];
  if (!own.distributed) return {own.local_shape, own.values};
  int index = 0;
  while (own.mesh_ranks[static_cast<std::size_t>(index)] != viewer) ++index;
  return gather_from(all, own, coordinate_of(index, own.mesh_shape), 0);
}

}  // namespace coshard::conform
