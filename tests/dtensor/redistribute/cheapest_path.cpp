#include "tests/dtensor/redistribute/cheapest_path.h"

#include <algorithm>

namespace coshard::oracle {
namespace {

// How a node is reached with at most so many collectives.
struct Reached {
  double time = std::numeric_limits<double>::infinity();
  std::size_t previous = 0;
  std::size_t previous_layer = 0;
  bool improved = false;  // since the layer before
};
using Layer = std::vector<Reached>;  // [node]

// By at most one more collective, issued last.
bool add_a_collective(const Graph& graph, const Layer& before, std::size_t layer, Layer& after) {
  bool improved = false;
  for (Reached& reached : after) reached.improved = false;
  for (std::size_t u = 0; u < graph.nodes(); ++u) {
    if (!before[u].improved) continue;
    for (std::size_t v = 0; v < graph.nodes(); ++v) {
      const Graph::Edge& edge = graph.edge(u, v);
      const double time = before[u].time + edge.time;
      if (!edge.collective || time >= after[v].time) continue;
      after[v] = {time, u, layer - 1, true};
      improved = true;
    }
  }
  return improved;
}

// Dijkstra over the steps that are no collectives.
void add_local_steps(const Graph& graph, std::size_t layer, Layer& reached) {
  std::vector<bool> done(graph.nodes());
  for (;;) {
    std::size_t u = graph.nodes();
    for (std::size_t v = 0; v < graph.nodes(); ++v)
      if (!done[v] && reached[v].time < (u < graph.nodes() ? reached[u].time : 1e300)) u = v;
    if (u == graph.nodes()) return;
    done[u] = true;
    if (!reached[u].improved) continue;
    for (std::size_t v = 0; v < graph.nodes(); ++v) {
      const Graph::Edge& edge = graph.edge(u, v);
      const double time = reached[u].time + edge.time;
      if (!edge.collective && time < reached[v].time) reached[v] = {time, u, layer, true};
    }
  }
}

std::vector<Layer> all_layers(const Graph& graph, std::size_t from) {
  std::vector<Layer> layers{Layer(graph.nodes())};
  layers[0][from] = {0, from, 0, true};
  add_local_steps(graph, 0, layers[0]);
  for (std::size_t layer = 1;; ++layer) {
    Layer next = layers.back();
    if (!add_a_collective(graph, layers.back(), layer, next)) return layers;
    add_local_steps(graph, layer, next);
    layers.push_back(std::move(next));
  }
}

}  // namespace

Path cheapest_path(const Graph& graph, std::size_t from, std::size_t to) {
  const std::vector<Layer> layers = all_layers(graph, from);
  Path path;
  path.time = layers.back()[to].time;
  std::size_t layer = 0;
  while (layers[layer][to].time > path.time * (1 + kSameTime)) ++layer;
  path.collectives = static_cast<int>(layer);
  for (std::size_t at = to; at != from;) {
    path.nodes.push_back(at);
    const Reached& reached = layers[layer][at];
    if (reached.time > 1e300) return {};
    at = reached.previous;
    layer = reached.previous_layer;
  }
  path.nodes.push_back(from);
  std::reverse(path.nodes.begin(), path.nodes.end());
  return path;
}

}  // namespace coshard::oracle
