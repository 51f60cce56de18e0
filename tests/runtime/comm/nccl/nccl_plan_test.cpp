// Which NCCL calls and copies a collective of uneven shards is, on each rank.
#include "runtime/comm/nccl/nccl_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>

#include "runtime/comm/collective.h"

namespace coshard::testing {
namespace {

using Extents = std::vector<std::int64_t>;
using Area = std::vector<std::uint8_t>;

// A plan of F32 shards of one dimension, on memory of its own.
struct PlannedShards {
  PlannedShards(CollectiveKind kind, const Extents& counts, std::int64_t outer, int rank,
                bool by_shards = false)
      : ranks(static_cast<int>(counts.size())) {
    Collective c;
    c.kind = kind;
    c.by_shards = by_shards;
    c.outer = outer;
    c.counts = std::make_shared<const Extents>(counts);
    c.extent = 0;
    for (const std::int64_t count : counts) c.extent += count;
    const auto bytes = [](std::int64_t elements) { return static_cast<std::size_t>(4 * elements); };
    send.resize(bytes(send_elements(c, ranks, rank)));
    recv.resize(bytes(recv_elements(c, ranks, rank)));
    c.send = send.data();
    c.recv = recv.data();
    plan = plan_nccl(c, ranks, rank, false, [&](std::size_t size) {
      scratch.push_back(std::make_unique<Area>(size));
      return scratch.back()->data();
    });
  }
  std::string calls() const {
    std::string text;
    for (const NcclRound& round : plan.rounds) text += (text.empty() ? "" : "+") + calls_of(round);
    return text;
  }
  static std::string calls_of(const NcclRound& round) {
    std::string text;
    for (const NcclCall& call : round.calls)
      text += (text.empty() ? "" : "+") + std::string(to_string(call.kind)) + " " +
              std::to_string(call.count);
    return text;
  }
  // Of the call for all ranks, if it is one: "user" or "scratch" for each buffer.
  std::string buffers() const {
    if (plan.rounds.empty()) return "";
    const NcclCall& call = plan.rounds[0].calls[0];
    if (call.kind != NcclCallKind::AllGather && call.kind != NcclCallKind::ReduceScatter) return "";
    const auto where = [&](const void* data) {
      for (const auto& area : scratch)
        if (data >= area->data() && data < area->data() + area->size()) return "scratch";
      return "user";
    };
    return std::string(where(call.send)) + " to " + where(call.recv);
  }
  int ranks;
  Area send, recv;
  std::vector<std::unique_ptr<Area>> scratch;
  NcclPlan plan;
};

TEST(NcclPlan, ShardsThatDifferLittleArePadded) {
  for (int rank = 0; rank < 4; ++rank) {
    for (const std::int64_t outer : {1, 2}) {
      const std::string count = std::to_string(3 * outer);
      const PlannedShards gather(CollectiveKind::AllGather, {3, 3, 3, 1}, outer, rank);
      EXPECT_EQ(gather.calls(), "ncclAllGather " + count);
      EXPECT_EQ(gather.plan.before.size(), 1U);
      EXPECT_EQ(gather.plan.rounds[0].after.size(), 4U);
      const PlannedShards sum(CollectiveKind::ReduceScatter, {3, 3, 3, 1}, outer, rank);
      EXPECT_EQ(sum.calls(), "ncclReduceScatter " + count);
      EXPECT_EQ(sum.plan.before.size(), 4U);
      EXPECT_EQ(sum.plan.rounds[0].after.size(), 1U);
    }
  }
}

TEST(NcclPlan, ShardsThatPaddingWouldDoubleAreNot) {
  for (int rank = 0; rank < 4; ++rank) {
    const Extents half = {4, 0, 4, 0}, one = {0, 0, 5, 0};
    EXPECT_EQ(PlannedShards(CollectiveKind::AllGather, half, 2, rank).calls(),
              "ncclBroadcast 8+ncclBroadcast 8");
    EXPECT_EQ(PlannedShards(CollectiveKind::ReduceScatter, half, 2, rank).calls(),
              "ncclReduce 8+ncclReduce 8");
    EXPECT_EQ(PlannedShards(CollectiveKind::AllGather, one, 2, rank).calls(), "ncclBroadcast 10");
  }
  EXPECT_EQ(PlannedShards(CollectiveKind::AllGather, {0, 0}, 1, 0).calls(), "");
}

// A batch of 4 rows of shards: each is strided in the whole.
TEST(NcclPlan, AGatherByShardsUnpacksEachOnArrival) {
  const Extents counts = {3, 1, 0, 2};
  for (int rank = 0; rank < 4; ++rank) {
    const PlannedShards gather(CollectiveKind::AllGather, counts, 4, rank, true);
    ASSERT_EQ(gather.plan.rounds.size(), 3U);
    EXPECT_EQ(gather.plan.round_of[static_cast<std::size_t>(rank)], -1);
    const auto sent = counts[static_cast<std::size_t>(rank)];
    for (int k = 1; k < 4; ++k) {
      const auto source = static_cast<std::size_t>((rank + k) % 4);
      const NcclRound& round = gather.plan.rounds[static_cast<std::size_t>(k - 1)];
      EXPECT_EQ(gather.plan.round_of[source], k - 1);
      EXPECT_EQ(round.after.size(), counts[source] > 0 ? 1U : 0U);
      std::string calls = sent > 0 ? "ncclSend " + std::to_string(4 * sent) : "";
      if (counts[source] > 0)
        calls += (calls.empty() ? "" : "+") + ("ncclRecv " + std::to_string(4 * counts[source]));
      EXPECT_EQ(PlannedShards::calls_of(round), calls);
    }
  }
}

TEST(NcclPlan, AllRanksMakeTheSameCalls) {
  std::mt19937 engine(1);
  for (int round = 0; round < 200; ++round) {
    Extents counts(2 + engine() % 4);
    for (std::int64_t& count : counts) count = engine() % 6;
    for (const auto kind : {CollectiveKind::AllGather, CollectiveKind::ReduceScatter}) {
      const std::int64_t outer = 1 + round % 2;
      const PlannedShards first(kind, counts, outer, 0);
      for (int rank = 1; rank < static_cast<int>(counts.size()); ++rank) {
        const PlannedShards other(kind, counts, outer, rank);
        EXPECT_EQ(other.calls(), first.calls());
        EXPECT_EQ(other.buffers(), first.buffers());  // registered ones of all ranks, or of none
      }
    }
  }
}

// Every byte that is reduced was copied from the data.
TEST(NcclPlan, AReductionReadsNoUninitialisedPadding) {
  std::mt19937 engine(2);
  for (int round = 0; round < 200; ++round) {
    Extents counts(2 + engine() % 4);
    for (std::int64_t& count : counts) count = 2 + engine() % 3;
    PlannedShards sum(CollectiveKind::ReduceScatter, counts, 1 + engine() % 3, 0);
    std::ranges::fill(sum.send, std::uint8_t{1});
    for (const StridedCopy& copy : sum.plan.before) {
      const auto* from = static_cast<const std::uint8_t*>(copy.from);
      auto* to = static_cast<std::uint8_t*>(copy.to);
      ASSERT_LE(from + (copy.rows - 1) * copy.from_pitch + copy.bytes,
                sum.send.data() + sum.send.size());
      for (std::int64_t row = 0; row < copy.rows; ++row)
        std::copy_n(from + row * copy.from_pitch, copy.bytes, to + row * copy.to_pitch);
    }
    for (const auto& area : sum.scratch) EXPECT_EQ(std::ranges::count(*area, 0), 0);
  }
}

}  // namespace
}  // namespace coshard::testing
