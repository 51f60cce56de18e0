#include "profiling/bench/plan_misses.h"

#include <algorithm>
#include <limits>
#include <random>

#include "dtensor/redistribute/planner.h"
#include "profiling/bench/timed.h"

namespace coshard::bench {
namespace {

constexpr int kPairs = 200;

class RandomLayouts {
 public:
  Layout layout(std::size_t mesh_dims, bool partial) {
    Layout layout;
    for (std::size_t m = 0; m < mesh_dims; ++m) layout.push_back(placement(partial));
    return layout;
  }

 private:
  Placement placement(bool partial) {
    const int kind = std::uniform_int_distribution<int>(0, partial ? 5 : 4)(engine_);
    return kind == 5 ? Partial() : kind == 4 ? Replicate() : Shard(kind);
  }
  std::mt19937 engine_{1};
};

// The minimum of a few, since a search allocates.
double time_of_search(const std::vector<int>& mesh, const Shape& shape, const Layout& from,
                      const Layout& to) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    plan_steps(mesh, shape, 4, from, to);
    least = std::min(least, seconds_since(begin) * 1e6);
  }
  return least;
}

RobustStats misses(const std::vector<int>& mesh, const Shape& shape) {
  RandomLayouts random;
  std::vector<double> times;
  while (times.size() < kPairs) {
    const Layout from = random.layout(mesh.size(), true), to = random.layout(mesh.size(), false);
    if (!(from == to)) times.push_back(time_of_search(mesh, shape, from, to));
  }
  return robust_stats(times);
}

}  // namespace

std::vector<Result> time_plan_misses() {
  struct Mesh {
    const char* name;
    std::vector<int> shape;
    double target;
  };
  std::vector<Result> results;
  for (const Mesh& mesh : {Mesh{"8", {8}, 20}, Mesh{"4x4", {4, 4}, 50},
                           Mesh{"4x4x4", {4, 4, 4}, 200}, Mesh{"8x8x16", {8, 8, 16}, 1000}})
    for (const bool even : {true, false}) {
      const Shape shape = even ? Shape{1024, 2048, 1024, 4096} : Shape{1023, 2047, 513, 1001};
      const std::string name = std::string("plan_miss_") + mesh.name + (even ? "" : "_uneven");
      const double target = even ? mesh.target : 10 * mesh.target;
      const RobustStats stats = misses(mesh.shape, shape);
      results.push_back(measured(name, stats, "us", target));
      results.push_back({name + "_worst", stats.max, "us", target, false, {}, {}});
    }
  return results;
}

}  // namespace coshard::bench
