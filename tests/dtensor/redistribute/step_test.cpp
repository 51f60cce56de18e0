// One step of a plan: joint reductions, plain geometry, labels.
#include <gtest/gtest.h>

#include "dtensor/redistribute/step.h"

namespace coshard {
namespace {

TEST(PlanStepOf, PartialsOfOneKindReduceAtOnceAndAveragesBesideSumsDivide) {
  const std::vector<int> mesh{2, 3, 4};
  const Layout averages(Partial(Reduce::Avg), Replicate(), Partial(Reduce::Avg));
  EXPECT_EQ(reduction_of(averages, 0b101, mesh).reduce, Reduce::Avg);
  EXPECT_EQ(reduction_of(averages, 0b101, mesh).divisor, 1);
  const Layout mixed(Partial(), Partial(Reduce::Avg), Partial(Reduce::Avg));
  EXPECT_EQ(reduction_of(mixed, 0b111, mesh).reduce, Reduce::Sum);
  EXPECT_EQ(reduction_of(mixed, 0b111, mesh).divisor, 12);
  EXPECT_EQ(reduction_of(mixed, 0b011, mesh).divisor, 3);
  EXPECT_EQ(reduction_of(Layout(Partial(Reduce::Max)), 1, mesh).reduce, Reduce::Max);
}

TEST(PlanStepOf, IsPlainWherePiecesLieInTheOrderOfRanks) {
  ShardMap shard_map({2, 2}, {8, 8});
  PlanStep gather;
  gather.kind = StepKind::AllGather;
  gather.dims = 0b10;
  gather.from = Layout(Replicate(), Shard(0));
  gather.to = Layout(Replicate(), Replicate());
  EXPECT_TRUE(is_plain(shard_map, gather, shard_map.group(0, gather.dims)));
  gather.from = Layout(Replicate(), StridedShard(0, 2));
  EXPECT_FALSE(is_plain(shard_map, gather, shard_map.group(0, gather.dims)));
  PlanStep turn;
  turn.kind = StepKind::AllToAll;
  turn.dims = 0b01;
  turn.from = Layout(Shard(0), Replicate());
  turn.to = Layout(Shard(1), Replicate());
  EXPECT_TRUE(is_plain(shard_map, turn, shard_map.group(0, turn.dims)));
  turn.kind = StepKind::Slice;
  EXPECT_FALSE(is_plain(shard_map, turn, shard_map.group(0, turn.dims)));
}

TEST(PlanStepOf, SaysWhatChangesAndByWhichCollective) {
  PlanStep step;
  step.from = Layout(Shard(0), Replicate(), Partial());
  step.to = Layout(Replicate(), Replicate(), Shard(1));
  EXPECT_EQ(label_of(step), "S(0)P(sum)->RS(1)");
  EXPECT_EQ(to_string(StepKind::AllToAll), "all_to_all");
  EXPECT_EQ(to_string(StepKind::ShardToPartial), "to_partial");
  EXPECT_TRUE(communicates(StepKind::AllToAll));
  EXPECT_FALSE(communicates(StepKind::Slice));
}

}  // namespace
}  // namespace coshard
