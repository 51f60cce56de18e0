#pragma once
// Which steps lead from one layout to another, decided from explicit sets of positions. For the
// planner's oracle: it shares no code with the planner.
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "dtensor/redistribute/step.h"
#include "tests/dtensor/redistribute/held_positions.h"
#include "tests/dtensor/redistribute/plan_nodes.h"

namespace coshard::oracle {

// A step is priced by what the busiest rank receives and what it copies, in elements.
struct Step {
  StepKind kind = StepKind::Slice;
  MeshDims dims = 0;  // over which it communicates
  double moved = 0, copied = 0;
};

// Of one mesh, all of whose dimensions have several ranks, and one tensor. It keeps what it has
// found out.
class StepOracle {
 public:
  StepOracle(const std::vector<int>& mesh, const Shape& shape);
  StepOracle(const StepOracle&) = delete;

  const std::vector<int>& mesh() const { return ranks_.mesh(); }
  int tensor_dims() const { return static_cast<int>(positions_.size()); }
  int node_of(const Layout& layout);
  const Layout& layout_of(int node) const { return nodes_[index(node)].layout; }
  // Elements, of the rank that holds the most.
  double most(int node) const { return nodes_[index(node)].most; }
  // None: no step leads there.
  std::optional<Step> step(int from, int to);

 private:
  struct Node {
    Layout layout;
    std::vector<int> held;  // by tensor dimension
    double most = 0;
  };
  struct Known {
    bool decided = false;
    std::optional<Step> step;
  };

  std::optional<Step> decide(const Node& from, const Node& to);
  Step reshard(const Node& from, const Node& to);
  std::optional<Step> all_reduce(const Node& from, MeshDims dims) const;
  std::optional<Step> reduce_scatter(const Node& from, const Node& to, MeshDims dims);
  std::optional<Step> fill_with_zeros(const Node& from, const Node& to, MeshDims dims);
  static std::optional<Step> keep_shares(const Node& to, MeshDims changed);
  double most_of(const Node& node) const;
  double most_missing(const Node& from, const Node& to);
  bool are_joined(const Node& parts, const Node& whole, MeshDims dims);
  bool is_gathered(int d, const Node& from, const Node& to, MeshDims dims);
  bool is_plain(const Step& step, const Node& from, const Node& to);

  Ranks ranks_;
  std::deque<HeldPositions> positions_;  // by tensor dimension
  std::deque<Node> nodes_;
  std::map<LayoutKey, int> ids_;
  std::vector<std::vector<Known>> steps_;  // [from][to]
};

}  // namespace coshard::oracle
