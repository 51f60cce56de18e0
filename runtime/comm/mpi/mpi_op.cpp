#include "runtime/comm/mpi/mpi_op.h"

#include "runtime/comm/collective.h"

namespace coshard {

namespace {

std::vector<int> ranks_with(const std::vector<MpiOp::Source>& all,
                            std::atomic<int> MpiOp::Source::*count) {
  std::vector<int> ranks;
  for (std::size_t r = 0; r < all.size(); ++r)
    if ((all[r].*count).load() > 0) ranks.push_back(static_cast<int>(r));
  return ranks;
}

}  // namespace

std::vector<int> MpiOp::not_taken() const { return ranks_with(from, &Source::unsent); }
std::vector<int> MpiOp::not_summed() const { return ranks_with(from, &Source::unsummed); }

bool is_shared(CollectiveKind kind) {
  return kind == CollectiveKind::AllReduce || kind == CollectiveKind::AllGather ||
         kind == CollectiveKind::Broadcast;
}

bool sends_nothing(const Collective& c, int source) {
  if (c.control_only || c.kind == CollectiveKind::Barrier) return true;
  const bool of_root = c.kind == CollectiveKind::Broadcast || c.kind == CollectiveKind::Scatter;
  return of_root && source != c.root;
}

CopyBlock block_for(const Collective& c, int ranks, int source, int target) {
  if (is_shared(c.kind)) {
    CopyBlock whole;
    whole.row = send_elements(c, ranks, source);
    return whole;
  }
  if (c.kind == CollectiveKind::ReduceScatter) {  // split as for scatter
    const ShardExtent cut = shard_extent(c.counts, c.extent, ranks, target);
    CopyBlock block;
    block.row = cut.size * c.inner;
    block.size[2] = c.outer;
    block.from_stride[2] = cut.total * c.inner;
    block.from = cut.offset * c.inner;
    return block;
  }
  return block_of(c, c, ranks, source, target);
}

std::size_t bytes_for(const Collective& c, int ranks, int source, int target) {
  return static_cast<std::size_t>(elements_of(block_for(c, ranks, source, target))) *
         size_of(c.dtype);
}

bool is_contiguous(const CopyBlock& block, const std::array<std::int64_t, 3>& stride) {
  std::int64_t inner = block.row;
  for (std::size_t i = 3; i-- > 0;) {
    if (block.size[i] == 1) continue;
    if (stride[i] != inner) return false;
    inner *= block.size[i];
  }
  return true;
}

bool is_sharded(const Collective& c) {
  // Below this, the second round costs more than the bytes it saves.
  constexpr std::int64_t kLeast = 32 * 1024;
  if (c.kind != CollectiveKind::AllReduce || c.control_only) return false;
  return c.outer * c.extent * c.inner * static_cast<std::int64_t>(size_of(c.dtype)) >= kLeast;
}

// Split at cache line boundaries.
ShardOf shard_of(const Collective& c, int ranks, const Spread::Process& process) {
  constexpr std::int64_t kLine = 64;
  const std::int64_t all = c.outer * c.extent * c.inner;
  const auto begin = [&](int r) { return r == ranks ? all : all / kLine * r / ranks * kLine; };
  return {begin(process.before), begin(process.before + static_cast<int>(process.ranks.size()))};
}

}  // namespace coshard
