#include "dtensor/redistribute/planner.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include <coshard/runtime/error.h>
#include "dtensor/redistribute/plan_layouts.h"
#include "dtensor/redistribute/pricing.h"

namespace coshard {
namespace {

// Whether there is a plan; replicas become Partial only where operators ask for it.
bool is_known(const Placement& from, const Placement& to) {
  const bool shares = from.is_replicate() && to.reduce != Reduce::Product;
  return may_become(from, to) || (to.is_partial() && shares);
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

constexpr double kLongest = 1e17;    // of a step, so that no sum overflows
constexpr double kSlack = 1 + 1e-9;  // of numbers of elements
constexpr double kNever = std::numeric_limits<double>::infinity();

std::size_t number_of(const std::vector<Layout>& layouts, const Layout& layout) {
  const auto found = std::ranges::find(layouts, layout);
  CS_REQUIRE(found != layouts.end(), "the planner does not know the layout ", layout);
  return static_cast<std::size_t>(found - layouts.begin());
}

// The A* algorithm (Hart, Nilsson and Raphael, 1968) over the layouts of plan_layouts; without a
// goal, Dijkstra's. A layout is expanded again if it is reached at a lower cost, so the bounds need
// not be consistent.
class Search {
 public:
  static constexpr std::size_t kNone = ~std::size_t{0};

  // `most`: elements that a rank may hold on the way.
  Search(Pricing& pricing, const std::vector<Layout>& layouts, const Layout& from, std::size_t goal,
         double most)
      : pricing_(pricing),
        layouts_(layouts),
        nodes_(layouts.size()),
        start_(number_of(layouts, from)),
        goal_(goal),
        units_per_us_(std::min(1e6, kLongest / pricing.longest())),
        most_(most) {
    for (const std::size_t end : {start_, goal_}) {
      if (end == kNone) continue;
      nodes_[end].priced = pricing_.ready(layouts_[end]);
      nodes_[end].made = true;
    }
    nodes_[start_].rest = rest_of(nodes_[start_]);
    nodes_[start_].cost = {0, 0};
    open(start_);
  }

  // To the goal.
  std::vector<PlanStep> run() {
    while (has_next() && open_.top().first < limit()) expand_next();
    return path();
  }

  // Without a goal: to `target`. Infinite: there is no way, or it issues collectives and takes longer
  // than `most_us`.
  PlanCost cost_to(std::size_t target, double most_us) {
    const auto most = static_cast<std::int64_t>(std::min(most_us * units_per_us_, kLongest));
    while (has_next() && open_.top().first < nodes_[target].cost) {
      if (open_.top().first.time > most && !is_local(nodes_[target].cost)) return {true, kNever};
      expand_next();
    }
    return told(nodes_[target].cost);
  }
  // Whether no layout on the way there takes more elements than `most`.
  bool holds_at_most(double most, std::size_t number) const {
    for (; number != kNone; number = nodes_[number].before)
      if (nodes_[number].priced.most > most * kSlack) return false;
    return true;
  }
  // To the nearest layout that has no Partial and is as it was elsewhere.
  PlanCost cost_to_reduce() {
    const Layout& from = layouts_[start_];
    const auto is_reduced = [&from](const Layout& layout) {
      for (int m = 0; m < layout.ndim(); ++m)
        if (layout[m].is_partial() || !(from[m].is_partial() || layout[m] == from[m])) return false;
      return true;
    };
    while (has_next() && !is_reduced(layouts_[open_.top().second])) expand_next();
    return told(has_next() ? open_.top().first : Cost());
  }

 private:
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

  static bool is_local(const Cost& cost) { return cost != Cost() && cost.collectives == 0; }
  PlanCost told(const Cost& cost) const {
    if (cost == Cost()) return {true, kNever};
    return {cost.collectives > 0, static_cast<double>(cost.time) / units_per_us_};
  }

  Cost rest_of(const Node& node) {
    if (goal_ == kNone) return {0, 0};
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
    node.too_large = node.priced.most > most_ * kSlack;
    if (!node.too_large) node.rest = rest_of(node);
    return node;
  }

  void open(std::size_t number) { open_.push({nodes_[number].cost + nodes_[number].rest, number}); }

  // No way is looked for that costs as much as one that is known to reach the goal.
  Cost limit() const { return goal_ == kNone ? Cost() : nodes_[goal_].cost; }

  // Drops entries of layouts that were reached at a lower cost since.
  bool has_next() {
    const auto is_old = [this](const Entry& entry) {
      return entry.first != nodes_[entry.second].cost + nodes_[entry.second].rest;
    };
    while (!open_.empty() && is_old(open_.top())) open_.pop();
    return !open_.empty();
  }

  // The goal first: what cannot come before it is not priced.
  void expand_next() {
    const std::size_t now = open_.top().second;
    open_.pop();
    if (goal_ != kNone) reach(now, goal_);
    for (std::size_t next = 0; next < nodes_.size(); ++next)
      if (next != now && next != goal_) reach(now, next);
  }

  void reach(std::size_t now, std::size_t next) {
    Node& reached = node(next);
    const Cost so_far = nodes_[now].cost;
    if (reached.too_large || !(so_far < reached.cost) || !(so_far + reached.rest < limit())) return;
    const std::int64_t useful =
        std::min(reached.cost.time, limit().time - reached.rest.time) - so_far.time;
    const auto move = pricing_.move(nodes_[now].priced, reached.priced,
                                    static_cast<double>(useful + 1) / units_per_us_);
    if (!move) return;
    const Cost cost = so_far + cost_of(*move);
    if (!(cost < reached.cost) || !(cost + reached.rest < limit())) return;
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
  std::size_t start_, goal_;
  double units_per_us_;
  double most_;
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
                                 std::span<const Link> links) {
  CS_REQUIRE(from.ndim() == to.ndim(), "redistribute: layout ", to, " has ", to.ndim(),
             " entries, the tensor's ", from, " has ", from.ndim());
  Layout start = from, goal = to;
  for (int m = 0; m < from.ndim(); ++m) {
    CS_REQUIRE(is_known(from[m], to[m]), "cannot redistribute ", from[m], " to ", to[m]);
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
  const double most = std::max(pricing.ready(start).most, pricing.ready(goal).most);
  std::vector<PlanStep> steps =
      Search(pricing, *layouts, start, number_of(*layouts, goal), most).run();
  for (PlanStep& step : steps) {
    step.from = with_single_ranks(mesh_shape, step.from, to);
    step.to = with_single_ranks(mesh_shape, step.to, to);
  }
  return steps;
}

// One search without regard to how many elements a rank holds on the way, and one for each such limit
// that it does not keep.
class PlanCosts::Searches {
 public:
  Searches(std::span<const int> mesh_shape, const Shape& shape, int width, const Layout& from,
           std::span<const Link> links)
      : mesh_shape_(mesh_shape.begin(), mesh_shape.end()),
        shape_(shape),
        from_(on_several(from)),
        pricing_(mesh_shape_, shape, width, links),
        layouts_(plan_layouts(mesh_shape_, shape, from_, from_)),
        held_(pricing_.ready(from_).most) {}

  PlanCost to(const Layout& target, double limit) {
    const Layout goal = on_several(target);
    if (goal == from_) return {};
    const double most = std::max(held_, pricing_.ready(goal).most);
    const auto known = std::ranges::find(*layouts_, goal);
    if (known != layouts_->end() && !has_strided(goal)) {
      const auto number = static_cast<std::size_t>(known - layouts_->begin());
      const PlanCost cost = search(kNever).cost_to(number, limit);
      if (cost.time == kNever || search(kNever).holds_at_most(most, number)) return cost;
      return search(most).cost_to(number, limit);
    }
    // A target with placements of its own may have other layouts on its way.
    const auto layouts = plan_layouts(mesh_shape_, shape_, from_, goal);
    return Search(pricing_, *layouts, from_, kNone, most).cost_to(number_of(*layouts, goal), limit);
  }
  PlanCost reduced() { return search(held_).cost_to_reduce(); }

 private:
  static constexpr std::size_t kNone = Search::kNone;

  static bool has_strided(const Layout& layout) {
    return std::ranges::any_of(layout, [](const Placement& p) { return p.is_strided(); });
  }
  Layout on_several(Layout layout) const {
    for (int m = 0; m < layout.ndim(); ++m)
      if (mesh_shape_[static_cast<std::size_t>(m)] == 1) layout[m] = Replicate();
    return layout;
  }
  Search& search(double most) {
    const auto found = std::ranges::find(searches_, most, &Held::first);
    if (found != searches_.end()) return *found->second;
    auto made = std::make_unique<Search>(pricing_, *layouts_, from_, kNone, most);
    return *searches_.emplace_back(most, std::move(made)).second;
  }

  using Held = std::pair<double, std::unique_ptr<Search>>;
  std::vector<int> mesh_shape_;
  Shape shape_;
  Layout from_;
  Pricing pricing_;
  std::shared_ptr<const std::vector<Layout>> layouts_;
  double held_;
  std::vector<Held> searches_;
};

PlanCosts::PlanCosts(std::span<const int> mesh_shape, const Shape& shape, int width,
                     const Layout& from, std::span<const Link> links)
    : searches_(numel(shape) == 0
                    ? nullptr
                    : std::make_unique<Searches>(mesh_shape, shape, width, from, links)),
      from_(from) {}
PlanCosts::PlanCosts(PlanCosts&&) noexcept = default;
PlanCosts::~PlanCosts() = default;

PlanCost PlanCosts::to(const Layout& target, double limit) {
  if (target == from_) return {};
  for (int m = 0; m < target.ndim(); ++m)
    if (!is_known(from_[m], target[m])) return {true, kNever};
  PlanCost cost = searches_ ? searches_->to(target, limit) : PlanCost();
  // Another name for the same data; a strategy that leaves an input alone is preferred.
  if (cost.time == 0) cost.time = time_of(false, 0, 0);
  return cost;
}

PlanCost PlanCosts::reduced() { return searches_ ? searches_->reduced() : PlanCost(); }

std::string trace(const Layout& from, const std::vector<PlanStep>& steps) {
  std::string text = to_string(from);
  for (const PlanStep& step : steps) text += " -> " + to_string(step.to);
  return text;
}

}  // namespace coshard
