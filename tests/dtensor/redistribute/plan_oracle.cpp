#include "tests/dtensor/redistribute/plan_oracle.h"

#include <algorithm>
#include <cmath>

#include <coshard/runtime/error.h>
#include "tests/dtensor/redistribute/cheapest_path.h"

namespace coshard::oracle {
namespace {

constexpr double kLocalUs = 1e-3;
constexpr double kCopiedBytesPerUs = 100'000;

std::vector<int> of_several_ranks(const std::vector<int>& mesh) {
  std::vector<int> dims;
  for (std::size_t m = 0; m < mesh.size(); ++m)
    if (mesh[m] > 1) dims.push_back(static_cast<int>(m));
  return dims;
}

std::vector<int> sizes_of(const std::vector<int>& mesh) {
  std::vector<int> sizes;
  for (int m : of_several_ranks(mesh)) sizes.push_back(mesh[index(m)]);
  return sizes;
}

bool same_time(double a, double b) { return std::abs(a - b) <= kSameTime * std::max(a, b); }

// At the time that the steps themselves state.
Plan as_plan(const Layout& from, const std::vector<PlanStep>& steps) {
  Plan plan{0, 0, {from}};
  for (const PlanStep& step : steps) {
    plan.time += step.time;
    plan.collectives += communicates(step.kind) ? 1 : 0;
    plan.layouts.push_back(step.to);
  }
  return plan;
}

std::string price_fault(const Plan& found, const Plan& best) {
  if (!same_time(found.time, best.time))
    return found.time > best.time ? "not the cheapest" : "cheaper than the oracle's";
  if (found.collectives == best.collectives) return "";
  return "as cheap as the best, but not of the fewest collectives";
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Plan& plan) {
  for (std::size_t i = 0; i < plan.layouts.size(); ++i)
    out << (i == 0 ? "" : " -> ") << plan.layouts[i];
  const auto digits = out.precision(12);
  out << ", " << plan.time << " us, " << plan.collectives << " collectives";
  out.precision(digits);
  return out;
}

PlanOracle::PlanOracle(const std::vector<int>& mesh, const Shape& shape, int width)
    : kept_dims_(of_several_ranks(mesh)), steps_(sizes_of(mesh), shape), width_(width) {}

Layout PlanOracle::inner(const Layout& layout) const {
  Layout kept;
  for (int m : kept_dims_) kept.push_back(layout[m]);
  return kept;
}

PlanOracle::Links PlanOracle::inner(std::span<const Link> links) const {
  Links kept;
  for (int m : kept_dims_)
    if (!links.empty()) kept.push_back(links[index(m)]);
  return kept;
}

MeshDims PlanOracle::inner(MeshDims dims) const {
  MeshDims kept = 0;
  for (std::size_t i = 0; i < kept_dims_.size(); ++i)
    if (has(dims, kept_dims_[i])) kept |= 1U << i;
  return kept;
}

std::vector<int> PlanOracle::nodes_between(const Layout& from, const Layout& to) {
  const double most = std::max(steps_.most(steps_.node_of(from)), steps_.most(steps_.node_of(to)));
  std::vector<int> nodes;
  for (const Layout& layout : oracle::nodes_between(steps_.mesh(), steps_.tensor_dims(), from, to))
    if (const int node = steps_.node_of(layout); steps_.most(node) <= most) nodes.push_back(node);
  return nodes;
}

std::size_t PlanOracle::count_nodes(const Layout& from, const Layout& to) {
  return nodes_between(inner(from), inner(to)).size();
}

double PlanOracle::price(const Step& step, const Links& links) const {
  const double copying = step.copied * width_ / kCopiedBytesPerUs;
  if (!communicates(step.kind)) return kLocalUs + copying;
  const Link link = slowest(links, step.dims);
  return link.latency + step.moved * width_ / link.bytes_per_us + copying;
}

Plan PlanOracle::cheapest(const Layout& from, const Layout& to, std::span<const Link> links) {
  const std::vector<int> nodes = nodes_between(inner(from), inner(to));
  const Links inner_links = inner(links);
  Graph graph(nodes.size());
  for (std::size_t u = 0; u < nodes.size(); ++u)
    for (std::size_t v = 0; v < nodes.size(); ++v)
      if (const std::optional<Step> one = steps_.step(nodes[u], nodes[v]))
        graph.edge(u, v) = {price(*one, inner_links), communicates(one->kind)};
  const auto at = [&](const Layout& layout) {
    const auto found = std::find(nodes.begin(), nodes.end(), steps_.node_of(inner(layout)));
    return static_cast<std::size_t>(found - nodes.begin());
  };
  const Path path = cheapest_path(graph, at(from), at(to));
  Plan plan{path.time, path.collectives, {}};
  for (std::size_t node : path.nodes) plan.layouts.push_back(steps_.layout_of(nodes[node]));
  return plan;
}

Plan PlanOracle::priced(const std::vector<Layout>& layouts, std::span<const Link> links) {
  Plan plan{0, 0, layouts};
  for (std::size_t i = 1; i < layouts.size(); ++i) {
    const Layout &from = layouts[i - 1], &to = layouts[i];
    const int from_node = steps_.node_of(inner(from)), to_node = steps_.node_of(inner(to));
    const std::optional<Step> one = steps_.step(from_node, to_node);
    CS_REQUIRE(one, "no legal step from ", from, " to ", to);
    plan.time += price(*one, inner(links));
    plan.collectives += communicates(one->kind) ? 1 : 0;
  }
  return plan;
}

// Of one step, whatever the others are.
std::string PlanOracle::fault_of(const PlanStep& given, const std::vector<int>& nodes,
                                 const Links& links) {
  const int to = steps_.node_of(inner(given.to));
  if (std::find(nodes.begin(), nodes.end(), to) == nodes.end())
    return "no plan may pass through its target";
  const std::optional<Step> step = steps_.step(steps_.node_of(inner(given.from)), to);
  if (!step) return "not legal";
  if (given.kind != step->kind) return str_cat(to_string(step->kind), " is meant");
  if (communicates(given.kind) && inner(given.dims) != step->dims)
    return str_cat("the communicator is of mesh dimensions ", step->dims);
  const double time = price(*step, links);
  return same_time(given.time, time) ? "" : str_cat("the price is ", time);
}

std::string PlanOracle::sequence_fault(const std::vector<PlanStep>& steps, const Layout& from,
                                       const Layout& to, const Links& links) {
  const std::vector<int> nodes = nodes_between(from, to);
  Layout at = from;
  for (const PlanStep& step : steps) {
    std::string wrong = inner(step.from) == at ? fault_of(step, nodes, links) : "starts elsewhere";
    if (!wrong.empty())
      return str_cat("step ", step.from, " -> ", step.to, " (", to_string(step.kind),
                     " over mesh dimensions ", step.dims, ", ", step.time, " us): ", wrong);
    at = inner(step.to);
  }
  return at == to ? "" : str_cat("the last layout is ", at);
}

std::string PlanOracle::fault(const std::vector<PlanStep>& steps, const Layout& from,
                              const Layout& to, std::span<const Link> links) {
  const Plan best = cheapest(from, to, links), claimed = as_plan(from, steps);
  std::string wrong = sequence_fault(steps, inner(from), inner(to), inner(links));
  if (wrong.empty()) wrong = price_fault(priced(claimed.layouts, links), best);
  return wrong.empty() ? "" : str_cat(wrong, "\n  found: ", claimed, "\n  best: ", best);
}

}  // namespace coshard::oracle
