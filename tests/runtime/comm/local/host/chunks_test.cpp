// How an op is cut into chunks, and the blocks that ranks have for each other.
#include <gtest/gtest.h>

#include "runtime/comm/local/host/chunks.h"
#include "tests/runtime/comm/on_ranks.h"

namespace coshard::testing {
namespace {

Collective gather_of(std::int64_t outer, std::vector<std::int64_t> counts, std::int64_t inner) {
  Collective c;
  c.kind = CollectiveKind::AllGather;
  c.outer = outer;
  for (const std::int64_t count : counts) c.extent += count;
  c.inner = inner;
  c.counts = counts_of(std::move(counts));
  return c;
}

TEST(Chunks, ABlockOfAGatherIsRowsAtThePlaceOfTheirSource) {
  const Collective c = gather_of(3, {2, 1, 4}, 5);
  const CopyBlock block = block_of(c, c, 3, 2, 0);
  EXPECT_EQ(block.row, 4 * 5);
  EXPECT_EQ(block.from, 0);
  EXPECT_EQ(block.to, (2 + 1) * 5);
  std::int64_t rows = 1;
  for (const std::int64_t size : block.size) rows *= size;
  EXPECT_EQ(rows, 3);
}

TEST(Chunks, SmallOpsAreDoneAtOnceAndLargeOnesInManyChunks) {
  Collective sum;
  sum.kind = CollectiveKind::AllReduce;
  sum.extent = 1000;
  EXPECT_TRUE(is_one_shot(sum, 2, 0));
  sum.extent = kOneShotBytes;
  EXPECT_FALSE(is_one_shot(sum, 2, 0));
  CollectiveOp op(2);
  for (int r = 0; r < 2; ++r) op.entries[static_cast<std::size_t>(r)].args = sum;
  plan_chunks(op, 2);
  EXPECT_GT(op.chunks, 2U);
  EXPECT_GE(static_cast<std::int64_t>(op.chunks) * op.chunk_elements, sum.extent);
}

TEST(Chunks, EveryChunkTogetherIsTheWholeSum) {
  constexpr std::int64_t kCount = 100'001;
  std::vector<float> a(kCount, 1), b(kCount, 2), out_a(kCount), out_b(kCount);
  CollectiveOp op(2);
  for (int r = 0; r < 2; ++r) {
    Collective& c = op.entries[static_cast<std::size_t>(r)].args;
    c.kind = CollectiveKind::AllReduce;
    c.extent = kCount;
    c.send = r == 0 ? a.data() : b.data();
    c.recv = r == 0 ? out_a.data() : out_b.data();
  }
  plan_chunks(op, 2);
  for (std::uint32_t chunk = op.chunks; chunk-- > 0;) run_chunk(op, 2, chunk);
  EXPECT_EQ(out_a, std::vector<float>(kCount, 3));
  EXPECT_EQ(out_b, out_a);
}

}  // namespace
}  // namespace coshard::testing
