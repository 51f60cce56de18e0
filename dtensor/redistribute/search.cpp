#include "dtensor/redistribute/search.h"

#include <algorithm>
#include <limits>

#include "dtensor/redistribute/cost.h"
#include "runtime/error.h"

namespace coshard {
namespace {

// Plans are chosen for elements of this size, so that they do not depend on the dtype.
constexpr int kWidth = 4;
// Beyond the layouts that every plan needs, as many are tried as keep their number below this.
constexpr std::size_t kMostLayouts = 150;

void check(const Placement& from, const Placement& to) {
  if (!to.is_partial() || from == to) return;
  const bool shared = from.is_replicate() && to.reduce != Reduce::Product;
  CS_REQUIRE(shared || (from.cuts() && to.reduce == Reduce::Sum), "cannot redistribute ", from,
             " to ", to);
}

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
  Search(Holdings& holdings, const Choices& choices) : holdings_(holdings) {
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
    return 2 * slowest(holdings_.links(), step.dims).latency;
  }

  // A bound from below: a Partial goes by a collective only.
  double time_to_reduce(std::size_t from, std::size_t to) const {
    const Layout &a = layouts_[from], &b = layouts_[to];
    for (int m = 0; m < a.ndim(); ++m)
      if (a[m].is_partial() && !(a[m] == b[m])) return slowest(holdings_.links(), 1U << m).latency;
    return 0;
  }

  void reach(std::size_t now, std::size_t next) {
    const auto step = step_between(holdings_, layouts_[now], layouts_[next], kWidth);
    if (!step) return;
    const double time = best_[now].time + step->time + detour(*step);
    if (time >= best_[next].time) return;
    best_[next].time = time;
    best_[next].step = *step;
  }

  Holdings& holdings_;
  std::vector<Layout> layouts_;
  std::vector<Best> best_;
  Layout start_, goal_;
};

}  // namespace

std::vector<PlanStep> plan_steps(const std::vector<int>& mesh_shape, const Shape& shape,
                                 const Layout& from, const Layout& to,
                                 std::span<const LinkCost> links) {
  CS_REQUIRE(from.ndim() == to.ndim(), "redistribute: layout ", to, " has ", to.ndim(),
             " entries, the tensor's ", from, " has ", from.ndim());
  Layout start = from;
  for (int m = 0; m < from.ndim(); ++m) {
    check(from[m], to[m]);
    if (mesh_shape[static_cast<std::size_t>(m)] == 1) start[m] = to[m];  // the same data
  }
  if (start == to) return {};
  if (numel(shape) == 0) {  // nothing to move
    PlanStep step;
    step.from = start;
    step.to = to;
    return {step};
  }
  Holdings holdings(mesh_shape, shape, links);
  return Search(holdings, choices_of(mesh_shape, shape, start, to)).run(start, to);
}

std::string trace(const Layout& from, const std::vector<PlanStep>& steps) {
  std::string text = to_string(from);
  for (const PlanStep& step : steps) text += " -> " + to_string(step.to);
  return text;
}

}  // namespace coshard
