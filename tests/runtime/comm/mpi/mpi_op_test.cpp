#include "runtime/comm/mpi/mpi_op.h"

#include <gtest/gtest.h>

#include <memory>

namespace coshard {
namespace {

Collective of_kind(CollectiveKind kind, std::int64_t outer, std::int64_t extent,
                   std::int64_t inner) {
  Collective c;
  c.kind = kind;
  c.outer = outer;
  c.extent = extent;
  c.inner = inner;
  return c;
}

TEST(MpiOp, TheShardsOfAnAllReduceAreAllOfItOnce) {
  for (const std::int64_t elements : {0, 1, 63, 64, 65, 1000, 8192, 100'003})
    for (const int ranks : {1, 2, 3, 4, 7}) {
      const Collective c = of_kind(CollectiveKind::AllReduce, 1, elements, 1);
      std::int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const ShardOf shard = shard_of(c, ranks, rank);
        EXPECT_EQ(shard.first, next);
        EXPECT_LE(shard.first, shard.last);
        EXPECT_EQ(shard.first % 64, 0);
        next = shard.last;
      }
      EXPECT_EQ(next, elements) << elements << " over " << ranks;
    }
}

TEST(MpiOp, OnlyLargeAllReducesOfOneRankPerProcessAreSharded) {
  const auto spread = std::make_shared<Spread>();
  CollectiveOp op(2);
  op.remote = std::make_shared<MpiOp>(2, spread);
  Collective c = of_kind(CollectiveKind::AllReduce, 1, 8192, 1);  // 32 KiB
  EXPECT_TRUE(is_sharded(op, c));
  c.extent = 8191;
  EXPECT_FALSE(is_sharded(op, c));
  c.extent = 8192;
  c.control_only = true;
  EXPECT_FALSE(is_sharded(op, c));
  c.control_only = false;
  c.kind = CollectiveKind::AllGather;
  EXPECT_FALSE(is_sharded(op, c));
  c.kind = CollectiveKind::AllReduce;
  spread->one_each = false;
  EXPECT_FALSE(is_sharded(op, c));
}

TEST(MpiOp, OnlyTheRootSendsWhatComesFromIt) {
  for (const CollectiveKind kind : {CollectiveKind::Broadcast, CollectiveKind::Scatter}) {
    Collective c = of_kind(kind, 1, 6, 1);
    c.root = 1;
    EXPECT_TRUE(sends_nothing(c, 0));
    EXPECT_FALSE(sends_nothing(c, 1));
  }
  EXPECT_TRUE(sends_nothing(of_kind(CollectiveKind::Barrier, 1, 0, 1), 0));
  EXPECT_FALSE(sends_nothing(of_kind(CollectiveKind::AllGather, 1, 6, 1), 0));
}

TEST(MpiOp, AReduceScatterSendsEachRankItsRowsOfEveryOuterBlock) {
  const Collective c = of_kind(CollectiveKind::ReduceScatter, 3, 4, 5);
  const CopyBlock block = block_for(c, 2, 0, 1);
  EXPECT_EQ(block.from, 2 * 5);
  EXPECT_EQ(block.row, 2 * 5);
  EXPECT_EQ(elements_of(block), 3 * 2 * 5);
  EXPECT_EQ(bytes_for(c, 2, 0, 1), 3U * 2 * 5 * 4);
  EXPECT_FALSE(is_contiguous(block, block.from_stride));
}

TEST(MpiOp, ABlockIsContiguousWhereItsRowsTouch) {
  CopyBlock block;
  block.row = 8;
  EXPECT_TRUE(is_contiguous(block, {0, 0, 0}));
  block.size = {1, 4, 3};
  EXPECT_TRUE(is_contiguous(block, {0, 24, 8}));
  EXPECT_FALSE(is_contiguous(block, {0, 25, 8}));
  EXPECT_FALSE(is_contiguous(block, {0, 24, 9}));
}

}  // namespace
}  // namespace coshard
