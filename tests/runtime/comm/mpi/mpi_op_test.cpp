#include "runtime/comm/mpi/mpi_op.h"

#include <gtest/gtest.h>

#include <barrier>
#include <numeric>
#include <vector>

#include "tests/runtime/comm/mpi/members.h"

namespace coshard {
namespace {

using testing::all_of;
using testing::FakeProcesses;
using testing::Members;
using testing::on_members;

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

// What each process has sent for one collective, notices of the start and the end apart.
std::vector<testing::FakeMpi::Sent> sent_for(CollectiveKind kind, std::int64_t elements,
                                             const Members& members) {
  const int processes = members.world / members.per_process;
  std::vector<testing::FakeMpi::Sent> sent(static_cast<std::size_t>(processes));
  std::barrier together(static_cast<std::ptrdiff_t>(members.ranks.size()));
  const auto count = [&](FakeProcesses& job, int sign) {
    for (int p = 0; p < processes; ++p) {
      const testing::FakeMpi::Sent now = job.mpi().sent(p);
      sent[static_cast<std::size_t>(p)].messages += sign * now.messages;
      sent[static_cast<std::size_t>(p)].bytes += sign * now.bytes;
    }
  };
  on_members(members, 1, [&](Communicator& comm, FakeProcesses& job) {
    std::vector<double> data(static_cast<std::size_t>(elements), 1.0);
    together.arrive_and_wait();
    if (comm.rank() == 0) count(job, -1);
    together.arrive_and_wait();
    Collective c;
    c.kind = kind;
    c.dtype = DType::F64;
    c.extent = elements;
    const std::vector<double> mine(data);
    c.send = mine.data();
    c.recv = data.data();
    comm.issue(c).wait();
    together.arrive_and_wait();
    if (comm.rank() == 0) count(job, 1);
    together.arrive_and_wait();
    const int sum = kind == CollectiveKind::AllReduce ? comm.size() : 1;
    for (const double one : data) EXPECT_EQ(one, sum);
  });
  return sent;
}

TEST(MpiOp, OfASmallBufferIsOneMessageToEachProcess) {
  EXPECT_EQ(sent_for(CollectiveKind::AllReduce, 512, all_of(4, 1))[0].messages, 3);
}

// Not once for each rank that it is for.
TEST(MpiOp, OfAnAllGatherSendsEachShardOnceToEachOtherProcess) {
  struct {
    Members members;
    std::vector<int> shards;  // that each process sends
  } const cases[] = {
      {all_of(4, 2), {2, 2}},
      {all_of(6, 3), {3, 3}},
      {all_of(6, 2), {4, 4, 4}},
      {{{0, 1, 2, 3}, 6, 3}, {3, 1}},
  };
  for (const auto& [members, shards] : cases) {
    const std::int64_t shard = 8 * 10'000;  // bytes
    const auto ranks = static_cast<std::int64_t>(members.ranks.size());
    const auto sent = sent_for(CollectiveKind::AllGather, ranks * 10'000, members);
    for (std::size_t p = 0; p < sent.size(); ++p) {
      EXPECT_EQ(sent[p].messages, 2 * shards[p]) << "process " << p;  // its notice and it
      EXPECT_GE(sent[p].bytes, shards[p] * shard) << "process " << p;
      EXPECT_LE(sent[p].bytes, shards[p] * shard + 8192) << "process " << p;
    }
  }
}

// Of its ranks' data what others sum, and to each of them what it sums itself.
TEST(MpiOp, OfALargeAllReduceSendsEachShardOfTheDataOnceAndOneOfTheSum) {
  struct {
    Members members;
    std::vector<std::int64_t> twelfths;  // that each process sends, of the bytes of one rank
  } const cases[] = {
      {all_of(4, 1), {18, 18, 18, 18}},
      {all_of(4, 2), {18, 18}},
      {all_of(6, 2), {24, 24, 24}},
      {{{0, 1, 2, 3}, 6, 3}, {18, 12}},  // 3 ranks sum 9 twelfths, the fourth 3
      {{{4, 0, 1}, 6, 2}, {16, 0, 12}},  // the second has no rank
      {{{2, 0, 1, 3, 4, 5}, 6, 2}, {24, 24, 24}},
  };
  const std::int64_t elements = 12 * 64 * 100, twelfth = elements / 12 * 8;
  for (const auto& [members, twelfths] : cases) {
    const auto sent = sent_for(CollectiveKind::AllReduce, elements, members);
    for (std::size_t p = 0; p < sent.size(); ++p) {
      EXPECT_GE(sent[p].bytes, twelfths[p] * twelfth) << "process " << p;
      EXPECT_LE(sent[p].bytes, twelfths[p] * twelfth + 8192) << "process " << p;
    }
  }
}

TEST(MpiOp, OfAnAllReduceWhoseShardsAreEmptySumsAllTheSame) {
  Members members{{0}, 140, 70};
  for (int rank = 70; rank < 139; ++rank) members.ranks.push_back(rank);
  const auto sent =
      sent_for(CollectiveKind::AllReduce, 64 * 64, members);  // process 0 sums none of 64 lines
  EXPECT_GE(sent[0].bytes, 32 * 1024);
  EXPECT_LE(sent[0].bytes, 33 * 1024);
  EXPECT_LE(sent[1].bytes, 32 * 1024 + 69 * 1024);
}

}  // namespace
}  // namespace coshard
