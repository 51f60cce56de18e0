#include "dtensor/redistribute/transition.h"

#include <algorithm>
#include <limits>

#include "dtensor/redistribute/shard_map.h"

namespace coshard {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

int size_of(const MeshCosts& mesh, int m) { return mesh.sizes[static_cast<std::size_t>(m)]; }

// The largest and the smallest shard of `size` elements under `cut`.
struct PartSizes {
  std::int64_t largest, smallest;
};
PartSizes cut_once(PartSizes whole, const Placement& cut, int n) {
  const std::int64_t chunks = cut.is_strided() ? cut.split : 1;
  return {chunks * chunk_of(chunk_of(whole.largest, chunks, 0).size, n, 0).size,
          chunk_of(chunk_of(whole.smallest, chunks, 0).size, n, n - 1).size};
}

// How many positions of one tensor dimension the busiest rank needs, and how many of them it has:
// all that it needs or holds if one layout refines the other, else none.
struct Share {
  std::int64_t wanted = 0, kept = 0;
};
Share share_along(const MeshCosts& mesh, int dim, std::int64_t size, const Layout& from,
                  const Layout& to) {
  PartSizes have{size, size}, want{size, size};
  bool agree = true, have_more = false, want_more = false;  // beyond the shardings they share
  for (int m = 0; m < to.ndim(); ++m) {
    const bool had = from[m].is_sharded(dim), wants = to[m].is_sharded(dim);
    if (!had && !wants) continue;
    agree = agree && from[m] == to[m];
    have_more = have_more || (had && !agree);
    want_more = want_more || (wants && !agree);
    if (wants) want = cut_once(want, to[m], size_of(mesh, m));
    if (had)
      have =
          agree ? PartSizes{want.largest, want.largest} : cut_once(have, from[m], size_of(mesh, m));
  }
  if (!have_more) return {want.largest, want.largest};
  return {want.largest, want_more ? 0 : have.smallest};
}

// The mesh dimensions from `m` on that shard the same tensor dimension as `cut`; they must reshard
// it when an outer sharding is added or removed.
MeshDims inner_cuts(const Layout& layout, const Placement& cut, int m) {
  return cut.is_sharded() ? cutting(layout, cut.dim) >> m << m : 0;
}

// Bytes that a rank receives when data are resharded; negative: it has them all.
double bytes_missing(const MeshCosts& mesh, const Shape& shape, std::int64_t width,
                     const Layout& from, const Layout& to) {
  double wanted = static_cast<double>(width), kept = wanted;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const Share share = share_along(mesh, static_cast<int>(d), shape[d], from, to);
    wanted *= static_cast<double>(share.wanted);
    kept *= static_cast<double>(share.kept);
  }
  return wanted - kept;
}

// Bytes of the rank that holds the most; a Partial counts as the whole.
double bytes_held(const MeshCosts& mesh, const Shape& shape, std::int64_t width,
                  const Layout& layout) {
  double bytes = static_cast<double>(width);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    PartSizes part{shape[d], shape[d]};
    for (int m = 0; m < layout.ndim(); ++m)
      if (layout[m].is_sharded(static_cast<int>(d)))
        part = cut_once(part, layout[m], size_of(mesh, m));
    bytes *= static_cast<double>(part.largest);
  }
  return bytes;
}

int size_of_all(const MeshCosts& mesh, MeshDims dims) {
  int n = 1;
  for (int m = 0; m < static_cast<int>(mesh.sizes.size()); ++m)
    if (has(dims, m)) n *= size_of(mesh, m);
  return n;
}

// One collective that reduces over `dims`; `times`: 2 for an all_reduce.
double time_at_once(const MeshCosts& mesh, MeshDims dims, double bytes, int times) {
  const double n = size_of_all(mesh, dims);
  return time_of(true, times * bytes * (n - 1) / n, 0, slowest(mesh.links, dims));
}

// A reduction over `dims`: at once or, where links differ, hierarchically: a reduce_scatter over
// the fastest, a reduction of the rest over the others, and an all_gather for an all_reduce.
double time_of_reduction(const MeshCosts& mesh, MeshDims dims, double bytes, int times) {
  if (dims == 0) return 0;
  const double at_once = time_at_once(mesh, dims, bytes, times);
  MeshDims fastest = 0;
  double rate = 0;
  for (int m = 0; m < static_cast<int>(mesh.links.size()); ++m)
    if (has(dims, m) && mesh.links[static_cast<std::size_t>(m)].bytes_per_us > rate) {
      fastest = 1U << m;
      rate = mesh.links[static_cast<std::size_t>(m)].bytes_per_us;
    }
  if (fastest == dims || rate == 0 || rate == slowest(mesh.links, dims).bytes_per_us)
    return at_once;
  const double rest =
      time_of_reduction(mesh, dims & ~fastest, bytes / size_of_all(mesh, fastest), times);
  return std::min(at_once, times * time_at_once(mesh, fastest, bytes, 1) + rest);
}

// Which mesh dimensions change, and how; `now`: the layout after the local steps.
struct Differences {
  MeshDims scattered = 0, reduced = 0, moved = 0;
  Layout now;
  bool local = false, possible = true;
};
Differences differences_of(const MeshCosts& mesh, const Layout& from, const Layout& to) {
  Differences seen;
  seen.now = from;
  for (int m = 0; m < to.ndim(); ++m) {
    if (from[m] == to[m]) continue;
    seen.local = seen.local || size_of(mesh, m) == 1;
    if (size_of(mesh, m) == 1) continue;  // the same data
    const MeshDims bit = 1U << m, inner = inner_cuts(from, to[m], m);
    if (to[m].is_partial()) {
      seen.possible = seen.possible && from[m].is_replicate() && to[m].reduce != Reduce::Product;
      seen.local = true;
    } else if (from[m].is_partial()) {
      (to[m].is_sharded() ? seen.scattered : seen.reduced) |= bit;
    } else if (from[m].is_sharded()) {
      seen.moved |= bit | inner_cuts(from, from[m], m) | inner;
    } else if (inner != 0) {
      seen.moved |= inner;
    } else {
      seen.now[m] = to[m];  // sliced first, at no cost
      seen.local = true;
    }
  }
  return seen;
}

// Applies the reduction over `dims`. A new shard outside existing shards of the same dimension is
// strided at first, and both must then be resharded.
void take_reduced(const MeshCosts& mesh, const Layout& from, const Layout& to, MeshDims dims,
                  Differences& differences) {
  for (int m = 0; m < to.ndim(); ++m) {
    if (!has(dims, m)) continue;
    const MeshDims inner = inner_cuts(from, to[m], m);
    differences.now[m] = inner == 0 ? to[m] : StridedShard(to[m].dim, size_of_all(mesh, inner));
    if (inner != 0) differences.moved |= inner | 1U << m;
  }
}

}  // namespace

Transition time_to_redistribute(const MeshCosts& mesh, const Shape& shape, std::int64_t width,
                                const Layout& from, const Layout& to) {
  Differences differences = differences_of(mesh, from, to);
  if (!differences.possible) return {true, kInfinite};
  const bool reduces = (differences.scattered | differences.reduced) != 0;
  double time = differences.local ? time_of(false, 0, 0) : 0;
  if (numel(shape) == 0) return {reduces || differences.moved, time};
  for (const MeshDims dims : {differences.scattered, differences.reduced}) {
    const int times = dims == differences.scattered ? 1 : 2;
    time += time_of_reduction(mesh, dims, bytes_held(mesh, shape, width, differences.now), times);
    take_reduced(mesh, from, to, dims, differences);
  }
  if (!differences.moved) return {reduces, time};
  const double missing = bytes_missing(mesh, shape, width, reduces ? differences.now : from, to);
  return {true, time + time_of(true, missing, 0, slowest(mesh.links, differences.moved))};
}

double time_to_reduce(const MeshCosts& mesh, const Shape& shape, std::int64_t width,
                      const Layout& layout) {
  MeshDims dims = 0;
  for (int m = 0; m < layout.ndim(); ++m)
    if (layout[m].is_partial() && size_of(mesh, m) > 1) dims |= 1U << m;
  if (dims == 0) return 0;
  return time_of_reduction(mesh, dims, bytes_held(mesh, shape, width, layout), 1) -
         slowest(mesh.links, dims).latency;
}

}  // namespace coshard
