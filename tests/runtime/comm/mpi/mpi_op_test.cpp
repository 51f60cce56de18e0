#include "runtime/comm/mpi/mpi_op.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

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

// Ranks per process -> the processes, in the order of their first ranks.
std::vector<Spread::Process> processes_of(const std::vector<int>& sizes) {
  std::vector<Spread::Process> all;
  int next = 0;
  for (const int size : sizes) {
    all.push_back({static_cast<int>(all.size()), {}, next});
    for (int r = 0; r < size; ++r) all.back().ranks.push_back(next++);
  }
  return all;
}

TEST(MpiOp, TheShardsOfAnAllReduceAreAllOfItOnce) {
  const std::vector<std::vector<int>> all = {{1}, {1, 1}, {1, 1, 1}, {2, 2}, {3, 1, 2}, {4, 4, 4}};
  for (const std::int64_t elements : {0, 1, 63, 64, 65, 1000, 8192, 100'003})
    for (const std::vector<int>& sizes : all) {
      const Collective c = of_kind(CollectiveKind::AllReduce, 1, elements, 1);
      const int ranks = std::accumulate(sizes.begin(), sizes.end(), 0);
      std::int64_t next = 0;
      for (const Spread::Process& process : processes_of(sizes)) {
        const ShardOf shard = shard_of(c, ranks, process);
        EXPECT_EQ(shard.first, next);
        EXPECT_LE(shard.first, shard.last);
        EXPECT_EQ(shard.first % 64, 0);
        next = shard.last;
      }
      EXPECT_EQ(next, elements) << elements << " over " << ranks;
    }
}

TEST(MpiOp, AProcessSumsAShardForEachOfItsRanks) {
  const Collective c = of_kind(CollectiveKind::AllReduce, 1, 64 * 12, 1);
  const std::vector<Spread::Process> all = processes_of({3, 1, 2});
  EXPECT_EQ(shard_of(c, 6, all[0]).last, 64 * 6);
  EXPECT_EQ(shard_of(c, 6, all[1]).last, 64 * 8);
  EXPECT_EQ(shard_of(c, 6, all[2]).last, 64 * 12);
}

TEST(MpiOp, OnlyLargeAllReducesAreSharded) {
  Collective c = of_kind(CollectiveKind::AllReduce, 1, 8192, 1);  // 32 KiB
  EXPECT_TRUE(is_sharded(c));
  c.extent = 8191;
  EXPECT_FALSE(is_sharded(c));
  c.extent = 8192;
  c.control_only = true;
  EXPECT_FALSE(is_sharded(c));
  c.control_only = false;
  c.kind = CollectiveKind::AllGather;
  EXPECT_FALSE(is_sharded(c));
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

TEST(MpiOp, CountsAboveTwoToThe31AreKept) {
  constexpr std::int64_t kRows = 3'000'000'000;  // elements; twice as many in all
  const auto bytes = static_cast<std::size_t>(kRows) * 4;
  EXPECT_EQ(bytes_for(of_kind(CollectiveKind::ReduceScatter, 1, 2, kRows), 2, 0, 1), bytes);
  EXPECT_EQ(block_for(of_kind(CollectiveKind::ReduceScatter, 1, 2, kRows), 2, 0, 1).from, kRows);
  EXPECT_EQ(bytes_for(of_kind(CollectiveKind::Broadcast, 2, kRows, 1), 2, 0, 1), 2 * bytes);
  const Collective sum = of_kind(CollectiveKind::AllReduce, 2, kRows, 1);
  const std::vector<Spread::Process> all = processes_of({1, 1});
  EXPECT_EQ(shard_of(sum, 2, all[0]).last, kRows);
  EXPECT_EQ(shard_of(sum, 2, all[1]).first, kRows);
  EXPECT_EQ(shard_of(sum, 2, all[1]).last, 2 * kRows);
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
