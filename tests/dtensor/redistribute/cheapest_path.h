#pragma once
// The cheapest path of a graph, and of these the one with the fewest collectives. For the planner's
// oracle: it shares no code with the planner.
#include <limits>
#include <vector>

namespace coshard::oracle {

// Times that differ by less, relative to the larger, are equal.
constexpr double kSameTime = 1e-9;

class Graph {
 public:
  struct Edge {
    double time = std::numeric_limits<double>::infinity();  // no edge
    bool collective = false;
  };
  explicit Graph(std::size_t nodes) : nodes_(nodes), edges_(nodes * nodes) {}
  std::size_t nodes() const { return nodes_; }
  Edge& edge(std::size_t from, std::size_t to) { return edges_[from * nodes_ + to]; }
  const Edge& edge(std::size_t from, std::size_t to) const { return edges_[from * nodes_ + to]; }

 private:
  std::size_t nodes_;
  std::vector<Edge> edges_;
};

struct Path {
  double time = std::numeric_limits<double>::infinity();  // no path
  int collectives = 0;
  std::vector<std::size_t> nodes;
};
Path cheapest_path(const Graph& graph, std::size_t from, std::size_t to);

}  // namespace coshard::oracle
