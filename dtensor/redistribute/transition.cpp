#include "dtensor/redistribute/transition.h"

#include <limits>

#include "dtensor/redistribute/holdings.h"

namespace coshard {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

int size_of(const MeshCosts& mesh, int m) { return mesh.sizes[static_cast<std::size_t>(m)]; }

// The largest and the smallest part that `cut` makes of `size` elements.
struct PartSizes {
  std::int64_t largest, smallest;
};
PartSizes cut_once(PartSizes whole, const Placement& cut, int n) {
  const std::int64_t chunks = cut.is_strided() ? cut.split : 1;
  return {chunks * chunk_of(chunk_of(whole.largest, chunks, 0).size, n, 0).size,
          chunk_of(chunk_of(whole.smallest, chunks, 0).size, n, n - 1).size};
}

// One dimension of a tensor of which the busiest rank wants so many positions and has so many of
// them already: all of its own where the one layout cuts further than the other, else none.
struct Share {
  std::int64_t wanted = 0, kept = 0;
};
Share share_along(const MeshCosts& mesh, int dim, std::int64_t size, const Layout& from,
                  const Layout& to) {
  PartSizes have{size, size}, want{size, size};
  bool agree = true, have_more = false, want_more = false;  // beyond what they cut alike
  for (int m = 0; m < to.ndim(); ++m) {
    const bool had = from[m].cuts(dim), wants = to[m].cuts(dim);
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

// Bytes that a rank receives when shards change hands; negative: it has them all.
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

// Of the rank that has most; a Partial counts as a whole.
double bytes_held(const MeshCosts& mesh, const Shape& shape, std::int64_t width,
                  const Layout& layout) {
  double bytes = static_cast<double>(width);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    PartSizes part{shape[d], shape[d]};
    for (int m = 0; m < layout.ndim(); ++m)
      if (layout[m].cuts(static_cast<int>(d))) part = cut_once(part, layout[m], size_of(mesh, m));
    bytes *= static_cast<double>(part.largest);
  }
  return bytes;
}

// One collective that reduces over `dims`; `times`: 2 for an all_reduce.
double time_of_reduction(const MeshCosts& mesh, MeshDims dims, double bytes, int times) {
  if (dims == 0) return 0;
  double n = 1;
  for (std::size_t m = 0; m < mesh.sizes.size(); ++m)
    if (has(dims, static_cast<int>(m))) n *= mesh.sizes[m];
  return time_of(true, times * bytes * (n - 1) / n, 0, slowest(mesh.links, dims));
}

}  // namespace

Transition time_to_redistribute(const MeshCosts& mesh, const Shape& shape, std::int64_t width,
                                const Layout& from, const Layout& to) {
  MeshDims scattered = 0, reduced = 0, moved = 0;
  Layout now = from;
  bool local = false;
  for (int m = 0; m < to.ndim(); ++m) {
    if (from[m] == to[m]) continue;
    local = local || size_of(mesh, m) == 1;
    if (size_of(mesh, m) == 1) continue;  // the same data
    const MeshDims bit = 1U << m;
    if (to[m].is_partial()) {
      if (!from[m].is_replicate() || to[m].reduce == Reduce::Product) return {true, kInfinite};
      local = true;
    } else if (from[m].is_partial()) {
      (to[m].cuts() ? scattered : reduced) |= bit;
    } else if (from[m].cuts()) {
      moved |= bit;
    } else if (const MeshDims inner = cutting(from, to[m].dim) >> m; inner != 0) {
      moved |= inner << m;  // what is cut further in has to be cut anew
    } else {
      now[m] = to[m];  // first of all, for nothing
      local = true;
    }
  }
  const bool reduces = (scattered | reduced) != 0;
  double time = local ? time_of(false, 0, 0) : 0;
  if (numel(shape) == 0) return {reduces || moved, time};
  for (const MeshDims dims : {scattered, reduced}) {
    const int times = dims == scattered ? 1 : 2;
    time += time_of_reduction(mesh, dims, bytes_held(mesh, shape, width, now), times);
    for (int m = 0; m < to.ndim(); ++m)
      if (has(dims, m)) now[m] = to[m];
  }
  if (!moved) return {reduces, time};
  const double missing = bytes_missing(mesh, shape, width, reduces ? now : from, to);
  return {true, time + time_of(true, missing, 0, slowest(mesh.links, moved))};
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
