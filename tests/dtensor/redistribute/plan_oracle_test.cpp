// Are the planner's plans legal, and the cheapest there are? An oracle that works on sets of
// positions and searches all layouts judges them.
#include "tests/dtensor/redistribute/plan_oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include <coshard/runtime/error.h>
#include "dtensor/redistribute/planner.h"
#include "tests/support/seeds.h"

namespace coshard::oracle {
namespace {

using Mesh = std::vector<int>;
using Links = std::vector<Link>;
using Layouts = std::vector<Layout>;

constexpr Link kSlow{20, 1'000}, kMiddle{10, 10'000}, kFast{5, 100'000};

struct Pair {
  Layout from, to;
};

struct Setting {
  Mesh mesh;
  Shape shape;
  int width = 4;
  Links links;
};

std::string described(const Setting& setting, const Pair& pair) {
  std::ostringstream out;
  out << "mesh [";
  for (int n : setting.mesh) out << ' ' << n;
  out << " ], tensor " << setting.shape << " of width " << setting.width << ", links ";
  for (const Link& link : setting.links)
    out << '{' << link.latency << " us, " << link.bytes_per_us << " B/us} ";
  out << (setting.links.empty() ? "none, " : "") << pair.from << " -> " << pair.to;
  return out.str();
}

bool is_allowed(const Placement& from, const Placement& to) {
  if (!to.is_partial() || from == to) return true;
  if (from.is_sharded()) return to == Partial();
  return from.is_replicate() && to.reduce != Reduce::Product;
}

bool is_allowed(const Pair& pair) {
  for (int m = 0; m < pair.from.ndim(); ++m)
    if (!is_allowed(pair.from[m], pair.to[m])) return false;
  return true;
}

// "" or what is wrong with the plan.
std::string judged(PlanOracle& oracle, const Setting& setting, const Pair& pair) {
  const auto& [mesh, shape, width, links] = setting;
  std::string fault;
  try {
    const auto steps = plan_steps(mesh, shape, width, pair.from, pair.to, links);
    fault = oracle.fault(steps, pair.from, pair.to, links);
  } catch (const Error& error) {
    fault = str_cat("refused: ", error.what());
  }
  return fault.empty() ? "" : described(setting, pair) + ": " + fault;
}

bool has_partial_of(const Layout& layout, const std::vector<Reduce>& ops) {
  return std::any_of(layout.begin(), layout.end(), [&](const Placement& p) {
    return p.is_partial() && std::find(ops.begin(), ops.end(), p.reduce) != ops.end();
  });
}

// All pairs of the layouts of a mesh, except between equal ones. With P(sum) as the only Partial, or
// with P(avg) or P(max) in one of the two.
std::vector<Pair> all_pairs(const Mesh& mesh, int tensor_dims, bool only_sums) {
  const int dims = static_cast<int>(mesh.size());
  const std::vector<Reduce> others{Reduce::Avg, Reduce::Max};
  const Placement one = Partial(only_sums ? Reduce::Sum : others[0]);
  const Placement other = Partial(only_sums ? Reduce::Sum : others[1]);
  const Layouts layouts =
      nodes_between(mesh, tensor_dims, Layout::filled(dims, one), Layout::filled(dims, other));
  std::vector<Pair> pairs;
  for (const Layout& from : layouts)
    for (const Layout& to : layouts)
      if (from != to && (only_sums || has_partial_of(from, others) || has_partial_of(to, others)))
        pairs.push_back({from, to});
  return pairs;
}

std::vector<Links> links_of(const Mesh& mesh) {
  const Links uniform(mesh.size(), Link{8, 25'000});
  if (mesh.size() == 1) return {{}, uniform};
  Links outer_slow(mesh.size(), kMiddle);
  outer_slow.front() = kSlow;
  outer_slow.back() = kFast;
  return {{}, uniform, outer_slow, Links(outer_slow.rbegin(), outer_slow.rend())};
}

// Even and uneven ones, smaller than the mesh, of size 1; bound by latency and by bandwidth.
std::vector<Shape> shapes_of(int tensor_dims) {
  if (tensor_dims == 0) return {{}};
  if (tensor_dims == 1) return {{1}, {3}, {7}, {48}, {65'536}};
  return {{1, 1}, {1, 6}, {3, 10}, {5, 7}, {48, 96}, {1'024, 768}, {517, 301}};
}

// Judges all pairs of a mesh, or `limit` of them drawn evenly.
void judge_all(const Mesh& mesh, int tensor_dims, bool only_sums, std::size_t limit) {
  std::vector<Pair> pairs = all_pairs(mesh, tensor_dims, only_sums);
  std::erase_if(pairs, [](const Pair& pair) { return !is_allowed(pair); });
  const std::vector<Shape> shapes = shapes_of(tensor_dims);
  const std::size_t all = pairs.size() * shapes.size() * links_of(mesh).size();
  testing::Dice dice(7);
  for (const Shape& shape : shapes) {
    PlanOracle oracle(mesh, shape, 4);
    for (const Links& links : links_of(mesh))
      for (const Pair& pair : pairs) {
        if (dice.next() % all >= limit) continue;
        const std::string fault = judged(oracle, {mesh, shape, 4, links}, pair);
        ASSERT_TRUE(fault.empty()) << fault;
      }
  }
}

constexpr std::size_t kAll = COSHARD_ALL_PLANS ? ~std::size_t{0} : 2'000;
constexpr std::size_t kSome = COSHARD_ALL_PLANS ? 4'000 : 400;

void judge_all(const Mesh& mesh, std::size_t limit) {
  for (int tensor_dims : {0, 1, 2})
    for (bool only_sums : {true, false}) {
      judge_all(mesh, tensor_dims, only_sums, limit);
      if (::testing::Test::HasFatalFailure()) return;
    }
}

TEST(PlanOracle, PlansOnAMeshOfOneDimension) {
  for (int n : {2, 3, 4, 5}) ASSERT_NO_FATAL_FAILURE(judge_all({n}, kAll));
}

TEST(PlanOracle, PlansOnAMeshOfTwoDimensions) {
  for (const Mesh& mesh : {Mesh{2, 2}, Mesh{2, 3}}) ASSERT_NO_FATAL_FAILURE(judge_all(mesh, kAll));
}

TEST(PlanOracle, PlansOnALargerMesh) {
  for (const Mesh& mesh : {Mesh{2, 4}, Mesh{4, 4}, Mesh{2, 2, 2}})
    ASSERT_NO_FATAL_FAILURE(judge_all(mesh, kSome));
}

// Random settings, and layouts with StridedShards of any split and unit.
class Drawn {
 public:
  explicit Drawn(std::uint64_t seed) : dice_(seed) {}

  Setting setting() {
    Setting setting;
    setting.mesh = mesh();
    const int tensor_dims = 1 + dice_.below(3);
    const int scale = one_of({1, 1, 8, 32});
    for (int d = 0; d < tensor_dims; ++d)
      setting.shape.push_back(scale * one_of({1, 2, 3, 5, 7, 8, 12, 16}) + dice_.below(2));
    setting.width = one_of({1, 2, 4, 8});
    if (!dice_.one_in(4))
      for (std::size_t m = 0; m < setting.mesh.size(); ++m)
        setting.links.push_back(dice_.one_in(3) ? kSlow : dice_.one_in(2) ? kMiddle : kFast);
    return setting;
  }

  Pair pair(const Setting& setting) {
    const int tensor_dims = static_cast<int>(setting.shape.size());
    Pair pair;
    for (std::size_t m = 0; m < setting.mesh.size(); ++m) {
      pair.from.push_back(placement(tensor_dims));
      pair.to.push_back(target_of(pair.from[static_cast<int>(m)], tensor_dims));
    }
    return pair;
  }

 private:
  int one_of(const std::vector<int>& values) {
    return values[static_cast<std::size_t>(dice_.below(static_cast<int>(values.size())))];
  }

  // At most 64 ranks.
  Mesh mesh() {
    const int dims = 1 + dice_.below(4);
    Mesh mesh;
    for (int left = 64; static_cast<int>(mesh.size()) < dims; left /= mesh.back()) {
      const int n = dims > 2 ? one_of({2, 2, 2, 3, 4, 6}) : one_of({2, 3, 4, 5, 7, 8, 16, 64});
      mesh.push_back(dice_.one_in(12) ? 1 : std::min(n, left));
    }
    return mesh;
  }

  Placement placement(int tensor_dims) {
    const int d = dice_.below(tensor_dims);
    switch (dice_.below(10)) {
      case 0:
      case 1: return Replicate();
      case 2:
      case 3: return Partial(static_cast<Reduce>(dice_.one_in(2) ? 0 : dice_.below(5)));
      case 4:
      case 5:
      case 6: return strided(d);
      default: return Shard(d);
    }
  }

  Placement strided(int d) {
    const int unit = one_of({1, 1, 1, 2, 3, 5});
    return StridedShard(d, unit > 1 && dice_.one_in(2) ? 1 : one_of({2, 2, 3, 4, 5, 6, 8, 16}),
                        unit);
  }

  Placement target_of(const Placement& from, int tensor_dims) {
    for (;;) {
      const Placement to = dice_.one_in(4) ? from : placement(tensor_dims);
      if (is_allowed(from, to)) return to;
    }
  }

  testing::Dice dice_;
};

// A pair whose plan may pass through few enough layouts to search them all. If there seems to be
// none, the tensor loses a dimension.
std::string judged_at_random(std::uint64_t seed) {
  constexpr std::size_t kMostNodes = 300;
  Drawn drawn(seed);
  for (Setting setting = drawn.setting();;) {
    PlanOracle oracle(setting.mesh, setting.shape, setting.width);
    for (int attempt = 0; attempt < 4; ++attempt) {
      const Pair pair = drawn.pair(setting);
      if (oracle.inner(pair.from) != oracle.inner(pair.to) &&
          oracle.count_nodes(pair.from, pair.to) <= kMostNodes)
        return judged(oracle, setting, pair);
    }
    if (setting.shape.size() > 1)
      setting.shape.pop_back();
    else
      setting = drawn.setting();
  }
}

TEST(PlanOracle, PlansOfRandomPairs) {
  const std::uint64_t first = testing::first_seed();
  for (std::uint64_t seed = first; seed < first + testing::seeds(); ++seed) {
    const std::string fault = judged_at_random(seed);
    ASSERT_TRUE(fault.empty()) << fault << "; " << testing::how_to_replay(seed);
  }
}

TEST(PlanOracle, WhatHasNoMeaningIsRefused) {
  const Layouts layouts =
      nodes_between({2, 2}, 1, Layout(Partial(Reduce::Max), Partial(Reduce::Product)),
                    Layout(Partial(), Partial(Reduce::Avg)));
  for (const Layout& from : layouts)
    for (const Layout& to : layouts)
      if (!is_allowed(Pair{from, to})) {
        EXPECT_THROW(plan_steps({2, 2}, {4}, 4, from, to), Error) << from << " -> " << to;
      }
}

// Control: two all_reduces of the whole tensor are dear, and the oracle says so.
TEST(PlanOracle, KnowsADearPlan) {
  const Placement p = Partial(), r = Replicate();
  const Links links{kSlow, kFast};
  PlanOracle oracle({2, 4}, {4'096, 4'096}, 4);
  const Plan whole = oracle.priced({Layout(p, p), Layout(p, r), Layout(r, r)}, links);
  EXPECT_NEAR(whole.time, 68'140, 1);
  const Plan best = oracle.cheapest(Layout(p, p), Layout(r, r), links);
  EXPECT_NEAR(best.time, 17'814, 1);
  EXPECT_EQ(best.layouts,
            (Layouts{Layout(p, p), Layout(p, Shard(0)), Layout(r, Shard(0)), Layout(r, r)}));
  std::vector<PlanStep> steps(2);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    steps[i].kind = StepKind::AllReduce;
    steps[i].dims = 2U >> i;
    steps[i].from = whole.layouts[i];
    steps[i].to = whole.layouts[i + 1];
    steps[i].time = oracle.priced({steps[i].from, steps[i].to}, links).time;
  }
  EXPECT_TRUE(
      oracle.fault(steps, Layout(p, p), Layout(r, r), links).starts_with("not the cheapest"))
      << oracle.fault(steps, Layout(p, p), Layout(r, r), links);
}

}  // namespace
}  // namespace coshard::oracle
