#include "dtensor/redistribute/planner.h"

#include <algorithm>
#include <limits>

#include <coshard/runtime/error.h>
#include "dtensor/redistribute/pricing.h"

namespace coshard {
namespace {

// Plans are priced for elements of this size, so that they do not depend on the dtype.
constexpr int kWidth = 4;
// Cap on candidate layouts, beyond those that every plan needs.
constexpr std::size_t kMostLayouts = 150;

void check(const Placement& from, const Placement& to) {
  if (!to.is_partial() || from == to) return;
  const bool shared = from.is_replicate() && to.reduce != Reduce::Product;
  CS_REQUIRE(shared || (from.is_sharded() && to.reduce == Reduce::Sum), "cannot redistribute ",
             from, " to ", to);
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

// The placements that each mesh dimension may have on the way: the first, the last, R and, where a
// reduction is due, shards to scatter to and sums to merge with.
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
    if (from[m].is_sharded()) offer(choices, m, Partial(), false);
  for (int m = 0; m < from.ndim(); ++m) {
    if (!from[m].is_partial() || from[m] == to[m]) continue;
    for (int k = 0; k < from.ndim(); ++k) {
      for (const Placement& p : {to[k], from[k]}) {
        if (!p.is_sharded()) continue;
        offer(choices, m, Shard(p.dim), false);
        int inner = 1;  // shards of the same dimension that remain, further in
        for (int i = m + 1; i < from.ndim(); ++i)
          if (from[i].is_sharded(p.dim)) inner *= mesh_shape[static_cast<std::size_t>(i)];
        if (inner > 1) offer(choices, m, StridedShard(p.dim, inner), false);
      }
    }
  }
  // Replicas may split the work of a large reduction.
  const double all = static_cast<double>(numel(shape)) * kWidth;
  if (from.has_partial() && time_of(false, all, 0) > time_of(true, 0, 0)) {
    for (int m = 0; m < from.ndim(); ++m)
      for (int d = 0; from[m].is_replicate() && d < static_cast<int>(shape.size()); ++d)
        offer(choices, m, Shard(d), false);
  }
  for (int m = 0; m < from.ndim(); ++m) offer(choices, m, Replicate(), false);
  return choices;
}

// Dijkstra's algorithm over combinations of choices; a layout's number has choices as digits.
class Search {
 public:
  Search(Pricing& pricing, const Choices& choices) : pricing_(pricing), choices_(choices) {
    std::size_t layouts = 1;
    for (const auto& list : choices) layouts *= list.size();
    nodes_.resize(layouts);
  }

  std::vector<PlanStep> run(const Layout& from, const Layout& to) {
    start_ = from;
    goal_ = number_of(to);
    std::size_t now = number_of(from);
    node(now).time = 0;
    for (; now != goal_; now = nearest()) {
      nodes_[now].settled = true;
      std::erase(open_, now);
      relax(now);
      CS_REQUIRE(!open_.empty(), "cannot redistribute ", from, " to ", to);
    }
    std::vector<PlanStep> steps;
    for (; nodes_[now].before != kNone; now = nodes_[now].before) {
      PlanStep& step = steps.emplace_back();
      static_cast<Move&>(step) = nodes_[now].move;
      step.from = nodes_[nodes_[now].before].priced.layout;
      step.to = nodes_[now].priced.layout;
    }
    std::ranges::reverse(steps);
    return steps;
  }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  struct Node {
    double time = std::numeric_limits<double>::infinity();
    double rest = 0;  // lower bound of the time to the goal
    bool made = false, settled = false;
    std::size_t before = kNone;
    Move move;  // the last one on the path
    PricedLayout priced;
  };

  std::size_t number_of(const Layout& layout) const {
    std::size_t number = 0;
    for (int m = 0; m < layout.ndim(); ++m) {
      const auto& list = choices_[static_cast<std::size_t>(m)];
      const auto at = std::ranges::find(list, layout[m]) - list.begin();
      number = number * list.size() + static_cast<std::size_t>(at);
    }
    return number;
  }

  Node& node(std::size_t number) {
    Node& node = nodes_[number];
    if (node.made) return node;
    node.made = true;
    std::size_t factor = nodes_.size();
    Layout layout;
    for (const auto& list : choices_) {
      factor /= list.size();
      layout.push_back(list[number / factor % list.size()]);
    }
    node.priced = pricing_.ready(layout);
    if (number != goal_) node.rest = pricing_.at_least(node.priced, this->node(goal_).priced);
    return node;
  }

  std::size_t nearest() const {
    std::size_t nearest = open_.front();
    for (const std::size_t i : open_)
      if (nodes_[i].time < nodes_[nearest].time) nearest = i;
    return nearest;
  }

  // The goal first, so that layouts through which it takes longer are pruned.
  void relax(std::size_t now) {
    reach(now, goal_);
    if (nodes_[now].time + nodes_[now].rest >= nodes_[goal_].time) return;
    for (std::size_t next = 0; next < nodes_.size(); ++next)
      if (!nodes_[next].settled && next != goal_ &&
          nodes_[now].time + node(next).rest < nodes_[goal_].time)
        reach(now, next);
  }

  // Partials that become shards are to be scattered: an all_reduce that is sliced afterwards saves
  // one collective at best, for twice the bytes.
  double detour(const Move& move) {
    if (move.kind != StepKind::AllReduce) return 0;
    const Layout& goal = nodes_[goal_].priced.layout;
    for (int m = 0; m < goal.ndim(); ++m)
      if (has(move.dims, m) && start_[m].is_partial() && goal[m].is_replicate()) return 0;
    return 2 * pricing_.least_latency();
  }

  void reach(std::size_t now, std::size_t next) {
    Node& reached = node(next);
    const double useful = std::min(reached.time, nodes_[goal_].time - reached.rest);
    const auto move = pricing_.move(nodes_[now].priced, reached.priced, useful - nodes_[now].time);
    if (!move) return;
    const double time = nodes_[now].time + move->time + detour(*move);
    if (time >= useful) return;
    if (reached.before == kNone) open_.push_back(next);
    reached.time = time;
    reached.before = now;
    reached.move = *move;
  }

  Pricing& pricing_;
  const Choices& choices_;
  std::vector<Node> nodes_;
  std::vector<std::size_t> open_;  // reached, not settled
  Layout start_;
  std::size_t goal_ = 0;
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
  Pricing pricing(mesh_shape, shape, kWidth, links);
  const Choices choices = choices_of(mesh_shape, shape, start, to);
  return Search(pricing, choices).run(start, to);
}

std::string trace(const Layout& from, const std::vector<PlanStep>& steps) {
  std::string text = to_string(from);
  for (const PlanStep& step : steps) text += " -> " + to_string(step.to);
  return text;
}

}  // namespace coshard
