#include "dtensor/redistribute/planner.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include <coshard/runtime/error.h>
#include "dtensor/redistribute/plan_layouts.h"
#include "dtensor/redistribute/pricing.h"

namespace coshard {
namespace {

void check(const Placement& from, const Placement& to) {
  if (!to.is_partial() || from == to) return;
  const bool shared = from.is_replicate() && to.reduce != Reduce::Product;
  CS_REQUIRE(shared || (from.is_sharded() && to.reduce == Reduce::Sum), "cannot redistribute ",
             from, " to ", to);
}

// In whole units, so that plans of equal time are equal whatever the order of the sum; then by the
// number of collectives.
struct Cost {
  std::int64_t time = std::numeric_limits<std::int64_t>::max() / 2;
  int collectives = 0;
  auto operator<=>(const Cost&) const = default;
  friend Cost operator+(const Cost& a, const Cost& b) {
    return {a.time + b.time, a.collectives + b.collectives};
  }
};

constexpr double kLongest = 1e17;  // of a step, so that no sum overflows

// The A* algorithm (Hart, Nilsson and Raphael, 1968) over the layouts of plan_layouts. A layout is
// expanded again if it is reached at a lower cost, so the bounds need not be consistent.
class Search {
 public:
  Search(Pricing& pricing, const std::vector<Layout>& layouts, const Layout& from, const Layout& to)
      : pricing_(pricing),
        layouts_(layouts),
        nodes_(layouts.size()),
        units_per_us_(std::min(1e6, kLongest / pricing.longest())) {
    const auto number_of = [&](const Layout& layout) {
      const auto found = std::ranges::find(layouts, layout);
      CS_REQUIRE(found != layouts.end(), "the planner does not know the layout ", layout);
      return static_cast<std::size_t>(found - layouts.begin());
    };
    start_ = number_of(from);
    goal_ = number_of(to);
  }

  std::vector<PlanStep> run() {
    for (const std::size_t end : {start_, goal_}) {
      nodes_[end].priced = pricing_.ready(layouts_[end]);
      nodes_[end].made = true;
      most_ = std::max(most_, nodes_[end].priced.most);
    }
    nodes_[start_].rest = rest_of(nodes_[start_]);
    nodes_[start_].cost = {0, 0};
    open(start_);
    while (!open_.empty()) {
      const auto [bound, now] = open_.top();
      open_.pop();
      if (!(bound < nodes_[goal_].cost)) break;
      if (bound == nodes_[now].cost + nodes_[now].rest) expand(now);
    }
    return path();
  }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  struct Node {
    Cost cost;
    Cost rest{0, 0};  // a lower bound of the cost to the goal
    std::size_t before = kNone;
    bool made = false;
    bool too_large = false;  // ranks would hold more than they do before and after
    PricedLayout priced;
  };

  // Two units more for a collective than it takes: of plans that differ by rounding alone, the one
  // with fewer collectives is the cheaper.
  Cost cost_of(const Move& move) const {
    const bool moves = communicates(move.kind);
    return {std::llround(std::min(move.time * units_per_us_, kLongest)) + (moves ? 2 : 0), moves};
  }

  Cost rest_of(const Node& node) {
    const double time = pricing_.at_least(node.priced, nodes_[goal_].priced) * units_per_us_;
    // Rounded down by more than the errors of a sum.
    return {std::max<std::int64_t>(
                0, static_cast<std::int64_t>(std::min(time, kLongest) * (1 - 1e-12)) - 10),
            time > 0};
  }

  Node& node(std::size_t number) {
    Node& node = nodes_[number];
    if (node.made) return node;
    node.made = true;
    node.priced = pricing_.ready(layouts_[number]);
    node.too_large = node.priced.most > most_ * (1 + 1e-9);
    if (!node.too_large) node.rest = rest_of(node);
    return node;
  }

  void open(std::size_t number) { open_.push({nodes_[number].cost + nodes_[number].rest, number}); }

  // The goal first: what cannot come before it is not priced.
  void expand(std::size_t now) {
    reach(now, goal_);
    for (std::size_t next = 0; next < nodes_.size(); ++next)
      if (next != now && next != goal_) reach(now, next);
  }

  void reach(std::size_t now, std::size_t next) {
    Node& reached = node(next);
    const Cost so_far = nodes_[now].cost;
    if (reached.too_large || !(so_far < reached.cost) ||
        !(so_far + reached.rest < nodes_[goal_].cost))
      return;
    const std::int64_t useful =
        std::min(reached.cost.time, nodes_[goal_].cost.time - reached.rest.time) - so_far.time;
    const auto move = pricing_.move(nodes_[now].priced, reached.priced,
                                    static_cast<double>(useful + 1) / units_per_us_);
    if (!move) return;
    const Cost cost = so_far + cost_of(*move);
    if (!(cost < reached.cost) || !(cost + reached.rest < nodes_[goal_].cost)) return;
    reached.cost = cost;
    reached.before = now;
    if (next != goal_) open(next);
  }

  std::vector<PlanStep> path() {
    CS_REQUIRE(nodes_[goal_].before != kNone, "cannot redistribute ", layouts_[start_], " to ",
               layouts_[goal_]);
    std::vector<PlanStep> steps;
    for (std::size_t to = goal_; to != start_; to = nodes_[to].before) {
      const std::size_t from = nodes_[to].before;
      PlanStep& step = steps.emplace_back();
      static_cast<Move&>(step) = *pricing_.move(nodes_[from].priced, nodes_[to].priced);
      step.from = layouts_[from];
      step.to = layouts_[to];
    }
    std::ranges::reverse(steps);
    return steps;
  }

  using Entry = std::pair<Cost, std::size_t>;
  Pricing& pricing_;
  const std::vector<Layout>& layouts_;
  std::vector<Node> nodes_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open_;
  std::size_t start_ = 0, goal_ = 0;
  double units_per_us_;
  double most_ = 0;  // elements that a rank may hold on the way
};

// On a mesh dimension of one rank all placements are the same data.
Layout with_single_ranks(const std::vector<int>& mesh_shape, Layout layout, const Layout& to) {
  for (int m = 0; m < layout.ndim(); ++m)
    if (mesh_shape[static_cast<std::size_t>(m)] == 1) layout[m] = to[m];
  return layout;
}

}  // namespace

std::vector<PlanStep> plan_steps(const std::vector<int>& mesh_shape, const Shape& shape, int width,
                                 const Layout& from, const Layout& to,
                                 std::span<const LinkCost> links) {
  CS_REQUIRE(from.ndim() == to.ndim(), "redistribute: layout ", to, " has ", to.ndim(),
             " entries, the tensor's ", from, " has ", from.ndim());
  Layout start = from, goal = to;
  for (int m = 0; m < from.ndim(); ++m) {
    check(from[m], to[m]);
    if (mesh_shape[static_cast<std::size_t>(m)] == 1) start[m] = goal[m] = Replicate();
  }
  if (start == goal) return {};
  if (numel(shape) == 0) {  // nothing to move
    PlanStep step;
    step.from = with_single_ranks(mesh_shape, start, to);
    step.to = to;
    return {step};
  }
  Pricing pricing(mesh_shape, shape, width, links);
  const auto layouts = plan_layouts(mesh_shape, shape, start, goal);
  std::vector<PlanStep> steps = Search(pricing, *layouts, start, goal).run();
  for (PlanStep& step : steps) {
    step.from = with_single_ranks(mesh_shape, step.from, to);
    step.to = with_single_ranks(mesh_shape, step.to, to);
  }
  return steps;
}

std::string trace(const Layout& from, const std::vector<PlanStep>& steps) {
  std::string text = to_string(from);
  for (const PlanStep& step : steps) text += " -> " + to_string(step.to);
  return text;
}

}  // namespace coshard
