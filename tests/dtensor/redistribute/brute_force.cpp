#include "tests/dtensor/redistribute/brute_force.h"

#include <algorithm>
#include <limits>

#include <coshard/dtensor/redistribute/cost.h>
#include <coshard/runtime/error.h>

namespace coshard::testing {
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

std::optional<PlanStep> finish(Holdings& holdings, PlanStep step, int width,
                               std::span<const LinkCost> links) {
  const double packed =
      communicates(step.kind) && step.kind != StepKind::AllReduce &&
              !is_plain(holdings, step, holdings.group(0, step.dims))
          ? most(holdings, step.kind == StepKind::ReduceScatter ? step.from : step.to) +
                (step.kind == StepKind::AllToAll ? step.moved : 0)
          : 0;
  step.copied += packed;
  step.time = time_of(communicates(step.kind), step.moved * width, step.copied * width,
                      slowest(links, step.dims));
  // Between plans of equal time, the kind that does less.
  if (step.kind == StepKind::AllGather) step.time += 1e-4;
  if (step.kind == StepKind::AllReduce) step.time += 2e-4;
  return step;
}

std::optional<PlanStep> move_data(Holdings& holdings, PlanStep step, int width,
                                  std::span<const LinkCost> links) {
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
  return finish(holdings, step, width, links);
}

std::optional<PlanStep> reduce_data(Holdings& holdings, PlanStep step, MeshDims dims, int width,
                                    std::span<const LinkCost> links) {
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
  return finish(holdings, step, width, links);
}

}  // namespace

std::optional<PlanStep> brute_force_step(Holdings& holdings, const Layout& from, const Layout& to,
                                         int width, std::span<const LinkCost> links) {
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
  if (moved) return move_data(holdings, step, width, links);
  if (reduced) return reduce_data(holdings, step, reduced, width, links);
  step.kind = shared ? StepKind::Share : StepKind::Expand;
  if (expanded && !make_up(holdings, to, from, expanded)) return std::nullopt;
  step.copied = most(holdings, to);
  return finish(holdings, step, width, links);
}

namespace {

// Plans are chosen for elements of this size, so that they do not depend on the dtype.
constexpr int kWidth = 4;
// Beyond the layouts that every plan needs, as many are tried as keep their number below this.
constexpr std::size_t kMostLayouts = 150;

using Choices = std::vector<std::vector<Placement>>;

void offer(Choices& choices, int m, Placement placement, bool needed) {
  auto& list = choices[static_cast<std::size_t>(m)];
  if (std::ranges::find(list, placement) != list.end()) return;
  std::size_t layouts = 1;
  for (const auto& other : choices) layouts *= other.size();
  if (!needed && layouts / list.size() * (list.size() + 1) > kMostLayouts) return;
  list.push_back(placement);
}

// What each mesh dimension may be on the way: where it starts and ends, R, and where a reduction is
// due, shards to scatter it to and sums to merge it with.
Choices choices_of(const std::vector<int>& mesh_shape, const Shape& shape, const Layout& from,
                   const Layout& to) {
  Choices choices(static_cast<std::size_t>(from.ndim()));
  bool additive = false;
  for (int m = 0; m < from.ndim(); ++m) {
    offer(choices, m, from[m], true);
    offer(choices, m, to[m], true);
    if (from[m].is_partial() || to[m].is_partial()) offer(choices, m, Replicate(), true);
    additive = additive || from[m] == Partial() || from[m] == Partial(Reduce::Avg);
  }
  for (int m = 0; m < from.ndim(); ++m)
    if (!(from[m] == to[m])) offer(choices, m, Replicate(), false);
  for (int m = 0; additive && m < from.ndim(); ++m)
    if (from[m].cuts()) offer(choices, m, Partial(), false);
  for (int m = 0; m < from.ndim(); ++m) {
    if (!from[m].is_partial() || from[m] == to[m]) continue;
    for (int k = 0; k < from.ndim(); ++k) {
      for (const Placement& p : {to[k], from[k]}) {
        if (!p.cuts()) continue;
        offer(choices, m, Shard(p.dim), false);
        int inner = 1;  // shards of the same dimension that stay inside
        for (int i = m + 1; i < from.ndim(); ++i)
          if (from[i].cuts(p.dim)) inner *= mesh_shape[static_cast<std::size_t>(i)];
        if (inner > 1) offer(choices, m, StridedShard(p.dim, inner), false);
      }
    }
  }
  // Replicas may share the work of a large reduction.
  const double all = static_cast<double>(numel(shape)) * kWidth;
  if (from.has_partial() && time_of(false, all, 0) > time_of(true, 0, 0)) {
    for (int m = 0; m < from.ndim(); ++m)
      for (int d = 0; from[m].is_replicate() && d < static_cast<int>(shape.size()); ++d)
        offer(choices, m, Shard(d), false);
  }
  for (int m = 0; m < from.ndim(); ++m) offer(choices, m, Replicate(), false);
  return choices;
}

class Search {
 public:
  Search(Holdings& holdings, const Choices& choices, std::span<const LinkCost> links)
      : holdings_(holdings), links_(links) {
    for (const LinkCost& link : links) latency_ = std::min(latency_, link.latency);
    layouts_.emplace_back();
    for (const auto& list : choices) {
      std::vector<Layout> longer;
      for (const Layout& layout : layouts_)
        for (const Placement& p : list) {
          longer.push_back(layout);
          longer.back().push_back(p);
        }
      layouts_ = std::move(longer);
    }
    best_.resize(layouts_.size());
  }

  std::vector<PlanStep> run(const Layout& from, const Layout& to) {
    start_ = from;
    goal_ = to;
    best_[index_of(from)].time = 0;
    const std::size_t goal = index_of(to);
    while (true) {
      const std::size_t now = nearest();
      CS_REQUIRE(now < best_.size(), "cannot redistribute ", from, " to ", to);
      if (now == goal) break;
      best_[now].settled = true;
      relax(now, goal);
    }
    std::vector<PlanStep> steps;
    for (std::size_t at = goal; !(layouts_[at] == from); at = index_of(best_[at].step.from))
      steps.push_back(best_[at].step);
    std::ranges::reverse(steps);
    return steps;
  }

 private:
  struct Best {
    double time = std::numeric_limits<double>::infinity();
    bool settled = false;
    PlanStep step;  // the last one on the way
  };

  std::size_t index_of(const Layout& layout) const {
    return static_cast<std::size_t>(std::ranges::find(layouts_, layout) - layouts_.begin());
  }

  std::size_t nearest() const {
    std::size_t nearest = best_.size();
    for (std::size_t i = 0; i < best_.size(); ++i) {
      if (best_[i].settled || best_[i].time == std::numeric_limits<double>::infinity()) continue;
      if (nearest == best_.size() || best_[i].time < best_[nearest].time) nearest = i;
    }
    return nearest;
  }

  void relax(std::size_t now, std::size_t goal) {
    reach(now, goal);  // first, so that what must take longer is not looked at
    for (std::size_t next = 0; next < layouts_.size(); ++next) {
      if (best_[next].settled || next == goal) continue;
      const double least = best_[now].time + time_to_reduce(now, next) + time_to_reduce(next, goal);
      if (least < best_[goal].time) reach(now, next);
    }
  }

  // Partials that become shards are scattered: an all_reduce that is cut afterwards saves a
  // collective at best, at twice the bytes.
  double detour(const PlanStep& step) const {
    if (step.kind != StepKind::AllReduce) return 0;
    for (int m = 0; m < goal_.ndim(); ++m)
      if (has(step.dims, m) && start_[m].is_partial() && goal_[m].is_replicate()) return 0;
    return 2 * latency_;
  }

  // A bound from below: a Partial goes by a collective only.
  double time_to_reduce(std::size_t from, std::size_t to) const {
    const Layout &a = layouts_[from], &b = layouts_[to];
    for (int m = 0; m < a.ndim(); ++m)
      if (a[m].is_partial() && !(a[m] == b[m])) return latency_;
    return 0;
  }

  void reach(std::size_t now, std::size_t next) {
    const auto step = brute_force_step(holdings_, layouts_[now], layouts_[next], kWidth, links_);
    if (!step) return;
    const double time = best_[now].time + step->time + detour(*step);
    if (time >= best_[next].time) return;
    best_[next].time = time;
    best_[next].step = *step;
  }

  Holdings& holdings_;
  std::span<const LinkCost> links_;
  double latency_ = links_.empty() ? LinkCost().latency : links_[0].latency;
  std::vector<Layout> layouts_;
  std::vector<Best> best_;
  Layout start_, goal_;
};

}  // namespace

std::vector<PlanStep> brute_force_plan(const std::vector<int>& mesh_shape, const Shape& shape,
                                       const Layout& from, const Layout& to,
                                       std::span<const LinkCost> links) {
  if (from == to) return {};
  Holdings holdings(mesh_shape, shape);
  return Search(holdings, choices_of(mesh_shape, shape, from, to), links).run(from, to);
}

}  // namespace coshard::testing
