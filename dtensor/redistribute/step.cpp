#include "dtensor/redistribute/step.h"

#include <algorithm>
#include <bit>

#include "dtensor/redistribute/cost.h"

namespace coshard {
namespace {

using Pieces = std::vector<Ranges>;

const Ranges& of(const Pieces& pieces, int rank) { return pieces[static_cast<std::size_t>(rank)]; }

bool same(const Ranges& a, const Ranges& b) {
  return std::ranges::equal(
      a, b, [](const Range& x, const Range& y) { return x.begin == y.begin && x.end == y.end; });
}

bool commute(Reduce a, Reduce b) {
  const auto additive = [](Reduce r) { return r == Reduce::Sum || r == Reduce::Avg; };
  return a == b || (additive(a) && additive(b));
}

// May the Partials of `dims` be reduced now, all at once?
bool may_reduce(const Layout& layout, MeshDims dims) {
  for (int m = 0; m < layout.ndim(); ++m)
    for (int k = m + 1; has(dims, m) && k < layout.ndim(); ++k)
      if (layout[k].is_partial() && !commute(layout[m].reduce, layout[k].reduce)) return false;
  return true;
}

// The smallest set of mesh dimensions over which every rank finds what it wants along `dim`.
MeshDims sources(Holdings& holdings, const Layout& from, const Layout& to, int dim) {
  const Pieces& have = holdings.along(from, dim);
  const Pieces& want = holdings.along(to, dim);
  if (&have == &want) return 0;
  const MeshDims all = cutting(from, dim);
  MeshDims best = all;
  for (MeshDims dims = all;; dims = (dims - 1) & all) {  // every subset
    if (holdings.size(dims) <= holdings.size(best)) {
      bool enough = true;
      for (int rank = 0; enough && rank < holdings.ranks(); ++rank) {
        std::int64_t missing = count_of(of(want, rank));
        for (const int peer : holdings.group(rank, dims))
          missing -= common(of(want, rank), of(have, peer));
        enough = missing == 0;
      }
      if (enough) best = dims;
    }
    if (dims == 0) return best;
  }
}

// Do the pieces `to` of every group along `dim` make up what its ranks, all alike, hold in `from`?
bool partitions(Holdings& holdings, const Pieces& from, const Pieces& to, MeshDims dims) {
  for (int rank = 0; rank < holdings.ranks(); ++rank) {
    std::int64_t count = 0;
    for (const int peer : holdings.group(rank, dims)) {
      count += count_of(of(to, peer));
      if (common(of(from, rank), of(to, peer)) != count_of(of(to, peer))) return false;
    }
    if (count != count_of(of(from, rank))) return false;
  }
  return true;
}

// The shards of `cut` make up `whole`, in which the mesh dimensions `dims` are not cut.
bool make_up(Holdings& holdings, const Layout& whole, const Layout& cut, MeshDims dims) {
  for (int d = 0; d < holdings.ndim(); ++d) {
    const Pieces& all = holdings.along(whole, d);
    const Pieces& parts = holdings.along(cut, d);
    if (&all != &parts && !partitions(holdings, all, parts, cutting(cut, d) & dims)) return false;
  }
  return true;
}

double most(Holdings& holdings, const Layout& layout) {
  const auto held = holdings.held(layout);
  return static_cast<double>(*std::ranges::max_element(held));
}

std::optional<PlanStep> finish(Holdings& holdings, PlanStep step, int width) {
  const double packed =
      communicates(step.kind) && step.kind != StepKind::AllReduce &&
              !is_plain(holdings, step, holdings.group(0, step.dims))
          ? most(holdings, step.kind == StepKind::ReduceScatter ? step.from : step.to) +
                (step.kind == StepKind::AllToAll ? step.moved : 0)
          : 0;
  step.copied += packed;
  step.time = time_of(communicates(step.kind), step.moved * width, step.copied * width,
                      slowest(holdings.links(), step.dims));
  // Between plans of equal time, the kind that does less.
  if (step.kind == StepKind::AllGather) step.time += 1e-4;
  if (step.kind == StepKind::AllReduce) step.time += 2e-4;
  return step;
}

std::optional<PlanStep> move_data(Holdings& holdings, PlanStep step, int width) {
  bool gathers = true;
  for (int d = 0; d < holdings.ndim(); ++d) {
    const MeshDims dims = sources(holdings, step.from, step.to, d);
    step.dims |= dims;
    const Pieces& have = holdings.along(step.from, d);
    const Pieces& want = holdings.along(step.to, d);
    if (dims == 0)
      gathers = gathers && (&have == &want || std::ranges::equal(have, want, same));
    else
      gathers = gathers && partitions(holdings, want, have, dims);
  }
  step.kind = step.dims == 0 ? StepKind::Slice : gathers ? StepKind::AllGather : StepKind::AllToAll;
  const auto wanted = holdings.held(step.to), kept = holdings.held(step.from, step.to);
  for (std::size_t rank = 0; step.dims != 0 && rank < wanted.size(); ++rank)
    step.moved = std::max(step.moved, static_cast<double>(wanted[rank] - kept[rank]));
  return finish(holdings, step, width);
}

std::optional<PlanStep> reduce_data(Holdings& holdings, PlanStep step, MeshDims dims, int width) {
  if (!may_reduce(step.from, dims)) return std::nullopt;
  step.dims = dims;
  bool scatters = false;
  for (int m = 0; m < step.to.ndim(); ++m)
    scatters = scatters || (has(dims, m) && step.to[m].cuts());
  step.kind = scatters ? StepKind::ReduceScatter : StepKind::AllReduce;
  if (scatters) {
    for (int m = 0; m < step.to.ndim(); ++m)
      if (has(dims, m) && !step.to[m].cuts()) return std::nullopt;
    if (!make_up(holdings, step.from, step.to, dims)) return std::nullopt;
  }
  const int n = holdings.size(dims);
  step.moved = (scatters ? 1 : 2) * most(holdings, step.from) * (n - 1) / n;
  return finish(holdings, step, width);
}

}  // namespace

std::string_view to_string(StepKind kind) {
  switch (kind) {
    case StepKind::AllGather: return "all_gather";
    case StepKind::AllReduce: return "all_reduce";
    case StepKind::ReduceScatter: return "reduce_scatter";
    case StepKind::AllToAll: return "all_to_all";
    case StepKind::Slice: return "slice";
    case StepKind::Share: return "share";
    case StepKind::Expand: return "expand";
  }
  return "?";
}

std::optional<PlanStep> step_between(Holdings& holdings, const Layout& from, const Layout& to,
                                     int width) {
  MeshDims reduced = 0, expanded = 0, shared = 0, moved = 0;
  bool inner_partial = false;
  for (int m = from.ndim(); m-- > 0;) {
    const MeshDims bit = 1U << m;
    const bool product = to[m].is_partial() && to[m].reduce == Reduce::Product;
    if (from[m] == to[m]) {
      // as it is
    } else if (from[m].is_partial()) {
      if (to[m].is_partial()) return std::nullopt;
      reduced |= bit;
    } else if (!to[m].is_partial()) {
      moved |= bit;
    } else if (from[m].cuts()) {
      if (!(to[m] == Partial())) return std::nullopt;
      expanded |= bit;
    } else {
      if (product && inner_partial) return std::nullopt;
      shared |= bit;
    }
    inner_partial = inner_partial || to[m].is_partial();
  }
  if ((reduced != 0) + (expanded != 0) + (shared != 0) + (moved != 0) != 1) return std::nullopt;
  PlanStep step;
  step.from = from;
  step.to = to;
  if (moved) return move_data(holdings, step, width);
  if (reduced) return reduce_data(holdings, step, reduced, width);
  step.kind = shared ? StepKind::Share : StepKind::Expand;
  if (expanded && !make_up(holdings, to, from, expanded)) return std::nullopt;
  step.copied = most(holdings, to);
  return finish(holdings, step, width);
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

bool is_plain(Holdings& holdings, const PlanStep& step, std::span<const int> group) {
  // In rank order, each piece begins where the one before has ended or later.
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
  for (int d = 0; d < holdings.ndim(); ++d) {
    const Pieces& have = holdings.along(step.from, d);
    const Pieces& want = holdings.along(step.to, d);
    if (&have == &want) continue;
    ++changed;
    if ((cutting(step.from, d) & step.dims) == step.dims &&
        partitions(holdings, want, have, step.dims))
      gathered = d;
    else if ((cutting(step.to, d) & step.dims) == step.dims &&
             partitions(holdings, have, want, step.dims))
      scattered = d;
  }
  const bool gather_fits = gathered >= 0 && ascending(holdings.along(step.from, gathered));
  const bool scatter_fits = scattered >= 0 && ascending(holdings.along(step.to, scattered));
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
    from += cat(step.from[m]);
    to += cat(step.to[m]);
  }
  return from + "->" + to;
}

}  // namespace coshard
