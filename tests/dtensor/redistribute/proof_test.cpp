// Every plan between two layouts, executed on index sets: what each rank holds is a map from
// positions to values, a step does what its collective does and no more, and in the end every rank
// holds exactly what the target gives it.
#include <gtest/gtest.h>

#include <map>

#include "dtensor/redistribute/planner.h"
#include "tests/dtensor/redistribute/layouts.h"

namespace coshard {
namespace {

using testing::layouts_of;

constexpr std::int64_t kSizes = 18;  // 0 to twice the ranks and one more

using HeldValues = std::map<std::int64_t, double>;  // by row-major position in the logical tensor
using RankData = std::vector<HeldValues>;           // of every rank

std::vector<std::int64_t> positions(ShardMap& shard_map, const Layout& layout, int rank) {
  std::vector<std::int64_t> all{0};
  for (int d = 0; d < shard_map.ndim(); ++d) {
    std::vector<std::int64_t> longer;
    for (const std::int64_t before : all)
      for (const Range& r : shard_map.along(layout, d)[static_cast<std::size_t>(rank)])
        for (std::int64_t i = r.begin; i < r.end; ++i)
          longer.push_back(before * shard_map.shape()[static_cast<std::size_t>(d)] + i);
    all = std::move(longer);
  }
  return all;
}

double combine(Reduce reduce, const std::vector<double>& parts) {
  double value = parts[0];
  for (std::size_t i = 1; i < parts.size(); ++i) {
    switch (reduce) {
      case Reduce::Sum:
      case Reduce::Avg: value += parts[i]; break;
      case Reduce::Min: value = std::min(value, parts[i]); break;
      case Reduce::Max: value = std::max(value, parts[i]); break;
      case Reduce::Product: value *= parts[i]; break;
    }
  }
  return reduce == Reduce::Avg ? value / static_cast<double>(parts.size()) : value;
}

// Replicas agree, Partials differ by rank, in sign too.
RankData source_data(ShardMap& shard_map, const Layout& layout) {
  RankData data(static_cast<std::size_t>(shard_map.ranks()));
  MeshDims partial = 0;
  for (int m = 0; m < layout.ndim(); ++m)
    if (layout[m].is_partial()) partial |= 1U << m;
  for (int rank = 0; rank < shard_map.ranks(); ++rank) {
    const auto group = shard_map.group(rank, partial);
    const auto part = std::ranges::find(group, rank) - group.begin();
    for (const std::int64_t i : positions(shard_map, layout, rank))
      data[static_cast<std::size_t>(rank)][i] =
          static_cast<double>(i + 2) * (part % 2 ? -1.25 : 1.0 + 0.5 * static_cast<double>(part));
  }
  return data;
}

// What the ranks' data mean: Partials are reduced mesh dimension by mesh dimension, the last first.
RankData meaning(ShardMap& shard_map, const Layout& layout, RankData data) {
  for (int m = layout.ndim(); m-- > 0;) {
    if (!layout[m].is_partial()) continue;
    RankData reduced(data.size());
    for (int rank = 0; rank < shard_map.ranks(); ++rank) {
      for (const auto& [i, own] : data[static_cast<std::size_t>(rank)]) {
        std::vector<double> parts;
        for (const int peer : shard_map.group(rank, 1U << m))
          parts.push_back(data[static_cast<std::size_t>(peer)].at(i));
        reduced[static_cast<std::size_t>(rank)][i] = combine(layout[m].reduce, parts);
      }
    }
    data = std::move(reduced);
  }
  return data;
}

double after_step(ShardMap& shard_map, const PlanStep& step, const RankData& data, int rank,
                  std::int64_t i) {
  const HeldValues& own = data[static_cast<std::size_t>(rank)];
  switch (step.kind) {
    case StepKind::Slice: return own.at(i);
    case StepKind::ShardToPartial: return own.contains(i) ? own.at(i) : 0.0;
    case StepKind::ReplicateToPartial: {
      double value = own.at(i);
      for (int m = 0; m < step.to.ndim(); ++m) {
        if (step.from[m] == step.to[m] || shard_map.group(rank, 1U << m)[0] == rank) continue;
        if (step.to[m].reduce == Reduce::Product) value = 1;
      }
      for (int m = 0; m < step.to.ndim(); ++m) {
        if (step.from[m] == step.to[m] || shard_map.group(rank, 1U << m)[0] == rank) continue;
        if (step.to[m].reduce == Reduce::Sum) value = 0;
      }
      return value;
    }
    case StepKind::AllGather:
    case StepKind::AllToAll:
      for (const int peer : shard_map.group(rank, step.dims))
        if (data[static_cast<std::size_t>(peer)].contains(i))
          return data[static_cast<std::size_t>(peer)].at(i);
      ADD_FAILURE() << "no rank of the group holds position " << i;
      return 0;
    case StepKind::AllReduce:
    case StepKind::ReduceScatter: break;
  }
  const JointReduce joint = reduction_of(step.from, step.dims, shard_map.mesh_shape());
  std::vector<double> parts;
  for (const int peer : shard_map.group(rank, step.dims))
    parts.push_back(data[static_cast<std::size_t>(peer)].at(i));
  return combine(joint.reduce, parts) / joint.divisor;
}

void run_plan_on_sets(const std::vector<int>& mesh, const Shape& shape, const Layout& from,
                      const Layout& to) {
  const auto steps = plan_steps(mesh, shape, 4, from, to);
  ShardMap shard_map(mesh, shape);
  RankData data = source_data(shard_map, from);
  const RankData want = meaning(shard_map, from, data);
  std::map<std::int64_t, double> logical;
  for (const HeldValues& values : want) logical.insert(values.begin(), values.end());
  for (const PlanStep& step : steps) {
    RankData next(data.size());
    for (int rank = 0; rank < shard_map.ranks(); ++rank)
      for (const std::int64_t i : positions(shard_map, step.to, rank))
        next[static_cast<std::size_t>(rank)][i] = after_step(shard_map, step, data, rank, i);
    data = std::move(next);
  }
  const RankData got = meaning(shard_map, to, data);
  for (int rank = 0; rank < shard_map.ranks(); ++rank) {
    const HeldValues& values = got[static_cast<std::size_t>(rank)];
    ASSERT_EQ(values.size(), positions(shard_map, to, rank).size()) << trace(from, steps);
    for (const auto& [i, value] : values)
      ASSERT_NEAR(value, logical.at(i), 1e-9 * (1 + std::abs(logical.at(i))))
          << trace(from, steps) << " of " << shape << " at " << i << " on rank " << rank;
  }
}

// Calls `body` for every pair of layouts that may follow each other.
template <class Body>
int each_pair(const std::vector<Layout>& layouts, const Body& body) {
  int pairs = 0;
  for (const Layout& from : layouts)
    for (const Layout& to : layouts)
      if (testing::allowed(from, to)) body(from, to, pairs++);
  return pairs;
}

TEST(PlanProof, EveryPairOnEightRanksGivesEveryRankItsPartWhateverTheSizes) {
  const auto layouts =
      layouts_of(1, {Replicate(), Shard(0), Shard(1), StridedShard(0, 2), StridedShard(1, 1, 2),
                     StridedShard(1, 3), Partial(), Partial(Reduce::Avg), Partial(Reduce::Min),
                     Partial(Reduce::Max)});
  for (std::int64_t size = 0; size < kSizes; ++size)
    each_pair(layouts, [&](const Layout& from, const Layout& to, int) {
      run_plan_on_sets({8}, {size, 5}, from, to);
      run_plan_on_sets({8}, {3, size}, from, to);
    });
}

TEST(PlanProof, EveryPairOnFourByTwoGivesEveryRankItsPartWhateverTheSizes) {
  const auto layouts =
      layouts_of(2, {Replicate(), Shard(0), Shard(1), StridedShard(0, 2), Partial()});
  for (std::int64_t size = 0; size < kSizes; ++size)
    each_pair(layouts, [&](const Layout& from, const Layout& to, int pair) {
      run_plan_on_sets({4, 2}, pair % 2 ? Shape{size, 5} : Shape{5, size}, from, to);
    });
}

class PlanProofOfSize : public ::testing::TestWithParam<std::int64_t> {};

// Each pair is run with a third of the sizes; under a sanitizer, which finds no other plans, with
// one.
TEST_P(PlanProofOfSize, EveryPairOnTwoByTwoByTwoGivesEveryRankItsPart) {
  const std::int64_t size = GetParam();
  const auto layouts = layouts_of(3, {Replicate(), Shard(0), Shard(1), Shard(2), Partial()});
  const int pairs = each_pair(layouts, [&](const Layout& from, const Layout& to, int pair) {
    if (pair % (COSHARD_ALL_PLANS ? 3 : kSizes) != size % (COSHARD_ALL_PLANS ? 3 : kSizes)) return;
    const Shape shapes[] = {{size, 3, 2}, {2, size, 3}, {3, 2, size}};
    run_plan_on_sets({2, 2, 2}, shapes[(pair + size) % 3], from, to);
  });
  EXPECT_EQ(pairs, 24 * 24 * 24);
}

INSTANTIATE_TEST_SUITE_P(All, PlanProofOfSize, ::testing::Range<std::int64_t>(0, kSizes));

TEST(PlanProof, MixedReductionsAreDoneTheInnerFirst) {
  const auto layouts =
      layouts_of(2, {Replicate(), Shard(0), Partial(), Partial(Reduce::Avg), Partial(Reduce::Min),
                     Partial(Reduce::Max), Partial(Reduce::Product)});
  for (const Shape& shape : {Shape{5, 2}, Shape{8, 1}})
    each_pair(layouts, [&](const Layout& from, const Layout& to, int) {
      run_plan_on_sets({2, 3}, shape, from, to);
    });
}

// HyperParallel's planner, as audited: wrong data without a word.
TEST(PlanProof, AShardThatMovesInwardUnderANewOuterOneKeepsItsData) {
  const Layout from(Replicate(), Shard(0)), to(Shard(1), Shard(1));
  for (const Shape& shape : {Shape{8, 8}, Shape{5, 9}, Shape{1, 3}})
    run_plan_on_sets({4, 2}, shape, from, to);
  EXPECT_EQ(trace(from, plan_steps({4, 2}, {8, 8}, 4, from, to)), "RS(0) -> S(1)S(1)");
}

// The same: an endless list of steps.
TEST(PlanProof, ATurnOfThreeMeshDimensionsComesToAnEnd) {
  const Layout from(Shard(0), Shard(0), Shard(2)), to(Shard(2), Shard(1), Replicate());
  for (const Shape& shape : {Shape{4, 4, 4}, Shape{3, 5, 7}})
    run_plan_on_sets({2, 2, 2}, shape, from, to);
  EXPECT_EQ(plan_steps({2, 2, 2}, {4, 4, 4}, 4, from, to).size(), 1U);
}

}  // namespace
}  // namespace coshard
