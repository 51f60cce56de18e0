#include "tests/dtensor/redistribute/step_oracle.h"

#include <algorithm>

namespace coshard::oracle {
namespace {

// What a step does with the mesh dimensions whose placement it changes; all of them alike.
enum class Change { None, Reshard, Reduce, Scatter, Fill, Share, Illegal };

Change change_of(const Placement& from, const Placement& to) {
  if (from == to) return Change::None;
  if (from.is_partial() && to.is_partial()) return Change::Illegal;
  if (from.is_partial()) return to.is_replicate() ? Change::Reduce : Change::Scatter;
  if (!to.is_partial()) return Change::Reshard;
  if (from.is_replicate()) return Change::Share;
  return to == Partial() ? Change::Fill : Change::Illegal;
}

Change change_of(const Layout& from, const Layout& to, MeshDims& changed) {
  Change all = Change::None;
  for (int m = 0; m < from.ndim(); ++m) {
    const Change one = change_of(from[m], to[m]);
    if (one == Change::None) continue;
    if (all != Change::None && one != all) return Change::Illegal;
    all = one;
    changed |= 1U << m;
  }
  return all;
}

bool is_linear(Reduce op) { return op == Reduce::Sum || op == Reduce::Avg; }

// Each Partial over `dims` with all inner ones.
bool commute(const Layout& layout, MeshDims dims) {
  for (int m = 0; m < layout.ndim(); ++m)
    for (int inner = m + 1; has(dims, m) && inner < layout.ndim(); ++inner) {
      if (!layout[inner].is_partial()) continue;
      const Reduce a = layout[m].reduce, b = layout[inner].reduce;
      if (a != b && !(is_linear(a) && is_linear(b))) return false;
    }
  return true;
}

bool is_sharded_over(const Layout& layout, int d, MeshDims dims) {
  for (int m = 0; m < layout.ndim(); ++m)
    if (has(dims, m) && !layout[m].is_sharded(d)) return false;
  return true;
}

}  // namespace

StepOracle::StepOracle(const std::vector<int>& mesh, const Shape& shape) : ranks_(mesh) {
  for (std::int64_t size : shape) positions_.emplace_back(ranks_, size);
}

int StepOracle::node_of(const Layout& layout) {
  const auto [entry, is_new] = ids_.try_emplace(key_of(layout), static_cast<int>(nodes_.size()));
  if (!is_new) return entry->second;
  Node& node = nodes_.emplace_back();
  node.layout = layout;
  for (int d = 0; d < tensor_dims(); ++d) {
    Splits splits;
    for (const Placement& p : layout)
      splits.push_back(p.is_sharded(d) ? Split{p.split, p.unit} : Split{0, 1});
    node.held.push_back(positions_[index(d)].of(splits));
  }
  node.most = most_of(node);
  return entry->second;
}

double StepOracle::most_of(const Node& node) const {
  double most = 0;
  for (int rank = 0; rank < ranks_.count(); ++rank) {
    double elements = 1;
    for (std::size_t d = 0; d < positions_.size(); ++d)
      elements *= positions_[d].counts(node.held[d])[index(rank)];
    most = std::max(most, elements);
  }
  return most;
}

std::optional<Step> StepOracle::step(int from, int to) {
  steps_.resize(std::max(steps_.size(), nodes_.size()));
  std::vector<Known>& row = steps_[index(from)];
  if (row.size() < nodes_.size()) row.resize(nodes_.size());
  Known& known = row[index(to)];
  if (!known.decided) known = {true, decide(nodes_[index(from)], nodes_[index(to)])};
  return known.step;
}

std::optional<Step> StepOracle::decide(const Node& from, const Node& to) {
  MeshDims changed = 0;
  switch (change_of(from.layout, to.layout, changed)) {
    case Change::Reshard: return reshard(from, to);
    case Change::Reduce: return all_reduce(from, changed);
    case Change::Scatter: return reduce_scatter(from, to, changed);
    case Change::Fill: return fill_with_zeros(from, to, changed);
    case Change::Share: return keep_shares(to, changed);
    default: return {};
  }
}

Step StepOracle::reshard(const Node& from, const Node& to) {
  Step step;
  step.moved = most_missing(from, to);
  if (step.moved == 0) return step;
  for (std::size_t d = 0; d < positions_.size(); ++d)
    step.dims |= positions_[d].needed(from.held[d], to.held[d]);
  step.kind = are_joined(from, to, step.dims) ? StepKind::AllGather : StepKind::AllToAll;
  if (is_plain(step, from, to)) return step;
  step.copied = to.most + (step.kind == StepKind::AllToAll ? step.moved : 0);
  return step;
}

std::optional<Step> StepOracle::all_reduce(const Node& from, MeshDims dims) const {
  if (!commute(from.layout, dims)) return {};
  const double n = ranks_.group_size(dims);
  return Step{StepKind::AllReduce, dims, 2 * from.most * (n - 1) / n, 0};
}

std::optional<Step> StepOracle::reduce_scatter(const Node& from, const Node& to, MeshDims dims) {
  if (!commute(from.layout, dims) || !are_joined(to, from, dims)) return {};
  const double n = ranks_.group_size(dims);
  Step step{StepKind::ReduceScatter, dims, from.most * (n - 1) / n, 0};
  if (!is_plain(step, from, to)) step.copied = from.most;
  return step;
}

std::optional<Step> StepOracle::fill_with_zeros(const Node& from, const Node& to, MeshDims dims) {
  if (!are_joined(from, to, dims)) return {};
  return Step{StepKind::ShardToPartial, 0, 0, to.most};
}

std::optional<Step> StepOracle::keep_shares(const Node& to, MeshDims changed) {
  bool inner_partial = false;
  for (int m = to.layout.ndim() - 1; m >= 0; --m) {
    if (has(changed, m) && inner_partial && to.layout[m] == Partial(Reduce::Product)) return {};
    inner_partial |= to.layout[m].is_partial();
  }
  return Step{StepKind::ReplicateToPartial, 0, 0, to.most};
}

// Elements that a rank wants and does not hold, of the rank that lacks the most.
double StepOracle::most_missing(const Node& from, const Node& to) {
  const std::size_t ranks = index(ranks_.count());
  std::vector<double> wanted(ranks, 1), kept(ranks, 1);
  for (std::size_t d = 0; d < positions_.size(); ++d) {
    const std::vector<double>& wanted_here = positions_[d].counts(to.held[d]);
    const std::vector<double>& kept_here = positions_[d].kept(from.held[d], to.held[d]);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      wanted[rank] *= wanted_here[rank];
      kept[rank] *= kept_here[rank];
    }
  }
  double most = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) most = std::max(most, wanted[rank] - kept[rank]);
  return most;
}

// Does each rank's `whole` consist of the `parts` of its group?
bool StepOracle::are_joined(const Node& parts, const Node& whole, MeshDims dims) {
  for (std::size_t d = 0; d < positions_.size(); ++d)
    if (positions_[d].joined(parts.held[d], dims) != whole.held[d]) return false;
  return true;
}

// Is tensor dimension d sharded over `dims` in rank order, and afterwards not at all over them? In
// the other direction, it is scattered.
bool StepOracle::is_gathered(int d, const Node& from, const Node& to, MeshDims dims) {
  HeldPositions& positions = positions_[index(d)];
  const int held = from.held[index(d)];
  return is_sharded_over(from.layout, d, dims) && positions.in_rank_order(held, dims) &&
         positions.joined(held, dims) == to.held[index(d)];
}

bool StepOracle::is_plain(const Step& step, const Node& from, const Node& to) {
  std::vector<int> changed;
  for (int d = 0; d < tensor_dims(); ++d)
    if (from.held[index(d)] != to.held[index(d)]) changed.push_back(d);
  const auto gathered = [&](std::size_t i) { return is_gathered(changed[i], from, to, step.dims); };
  const auto scattered = [&](std::size_t i) {
    return is_gathered(changed[i], to, from, step.dims);
  };
  if (step.kind == StepKind::AllGather) return changed.size() == 1 && gathered(0);
  if (step.kind == StepKind::ReduceScatter) return changed.size() == 1 && scattered(0);
  return changed.size() == 2 && ((gathered(0) && scattered(1)) || (scattered(0) && gathered(1)));
}

}  // namespace coshard::oracle
