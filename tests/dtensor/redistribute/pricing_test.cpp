// Closed forms against counting: random meshes of up to 64 ranks, shapes and layouts, even and
// uneven.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "dtensor/redistribute/pricing.h"
#include "tests/dtensor/redistribute/step_oracle.h"

namespace coshard {
namespace {

class RandomQuestions {
 public:
  explicit RandomQuestions(unsigned seed) : engine_(seed) {}
  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(engine_); }

  Placement placement(int tensor_dims) {
    const int dim = below(tensor_dims);
    switch (below(10)) {
      case 0:
      case 1: return Replicate();
      case 2: return Partial();
      case 3: return below(3) ? Partial() : below(2) ? Partial(Reduce::Avg) : Partial(Reduce::Max);
      case 4: return StridedShard(dim, 2 + below(3));
      default: return Shard(dim);
    }
  }
  Layout layout(int mesh_dims, int tensor_dims) {
    Layout layout;
    for (int m = 0; m < mesh_dims; ++m) layout.push_back(placement(tensor_dims));
    return layout;
  }
  // Changes some entries, so that most pairs are one step apart.
  Layout other(const Layout& from, int tensor_dims) {
    Layout to = from;
    do {
      to[below(from.ndim())] = placement(tensor_dims);
    } while (below(2));
    return to;
  }
  // Multiples of what all meshes and splits divide, or anything small.
  Shape shape(int ndim, const std::vector<int>& mesh) {
    Shape shape;
    const int ranks = std::accumulate(mesh.begin(), mesh.end(), 1, std::multiplies<>());
    for (int d = 0; d < ndim; ++d)
      shape.push_back(below(3) ? std::int64_t{ranks} * (1 + below(2)) * (below(2) ? 24 : 1)
                               : 1 + below(2 * ranks));
    return shape;
  }

 private:
  std::mt19937 engine_;
};

// Every shape of a mesh of up to 64 ranks whose sizes are at least 2, and up to four dimensions.
std::vector<std::vector<int>> all_meshes() {
  std::vector<std::vector<int>> meshes, longest{{}};
  for (int dims = 0; dims < 4; ++dims) {
    std::vector<std::vector<int>> longer;
    for (const auto& mesh : longest)
      for (int n = 2, ranks = std::accumulate(mesh.begin(), mesh.end(), 1, std::multiplies<>());
           ranks * n <= 64; ++n) {
        longer.push_back(mesh);
        longer.back().push_back(n);
      }
    meshes.insert(meshes.end(), longer.begin(), longer.end());
    longest = std::move(longer);
  }
  return meshes;
}

std::string question(const std::vector<int>& mesh, const Shape& shape, const Layout& from,
                     const Layout& to) {
  return str_cat(Shape(mesh.begin(), mesh.end()), " of ", shape, ": ", from, " -> ", to);
}

void expect_same_step(RandomQuestions& draw, const std::vector<int>& mesh, int pairs, int& steps) {
  const int tensor_dims = 1 + draw.below(3);
  const Shape shape = draw.shape(tensor_dims, mesh);
  oracle::StepOracle oracle(mesh, shape);
  Pricing pricing(mesh, shape, 4);
  for (int i = 0; i < pairs; ++i) {
    const Layout from = draw.layout(static_cast<int>(mesh.size()), tensor_dims);
    const Layout to = draw.other(from, tensor_dims);
    if (from == to) continue;
    const auto counted = oracle.step(oracle.node_of(from), oracle.node_of(to));
    const auto closed = pricing.move(pricing.ready(from), pricing.ready(to));
    const std::string text = question(mesh, shape, from, to);
    ASSERT_EQ(counted.has_value(), closed.has_value()) << text;
    if (!counted) continue;
    ++steps;
    ASSERT_EQ(to_string(counted->kind), to_string(closed->kind)) << text;
    if (communicates(closed->kind)) {
      ASSERT_EQ(counted->dims, closed->dims) << text;
    }
    ASSERT_DOUBLE_EQ(counted->moved, closed->moved) << text;
    ASSERT_DOUBLE_EQ(counted->copied, closed->copied) << text;
    ASSERT_DOUBLE_EQ(time_of(communicates(closed->kind), 4 * counted->moved, 4 * counted->copied),
                     closed->time)
        << text;
  }
}

constexpr int kRounds = COSHARD_ALL_PLANS ? 4 : 1;

TEST(ClosedForm, IsWhatCountingGivesOnEveryMeshOfUpTo64Ranks) {
  RandomQuestions draw(1);
  int steps = 0;
  for (const auto& mesh : all_meshes()) {
    for (int round = 0; round < kRounds && !HasFatalFailure(); ++round)
      expect_same_step(draw, mesh, 25, steps);
  }
  EXPECT_GT(steps, 5'000 * kRounds);
}

}  // namespace
}  // namespace coshard
