#include "runtime/comm/local/host/chunks.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "runtime/comm/collective.h"
#include "runtime/comm/local/host/reduce.h"

namespace coshard {
namespace {

const char* at(const void* base, std::int64_t elements, std::size_t width) {
  return static_cast<const char*>(base) + elements * static_cast<std::int64_t>(width);
}
char* at(void* base, std::int64_t elements, std::size_t width) {
  return static_cast<char*>(base) + elements * static_cast<std::int64_t>(width);
}

void copy_rows(void* to, const void* from, std::int64_t elements, std::size_t width) {
  if (to != from) std::memcpy(to, from, static_cast<std::size_t>(elements) * width);
}

void copy_block(const CopyBlock& block, const void* send, void* recv, std::size_t width) {
  if (block.row == 0) return;
  for (std::int64_t i = 0; i < block.size[0]; ++i) {
    for (std::int64_t j = 0; j < block.size[1]; ++j) {
      std::int64_t from = block.from + i * block.from_stride[0] + j * block.from_stride[1];
      std::int64_t to = block.to + i * block.to_stride[0] + j * block.to_stride[1];
      for (std::int64_t k = 0; k < block.size[2]; ++k) {
        copy_rows(at(recv, to, width), at(send, from, width), block.row, width);
        from += block.from_stride[2];
        to += block.to_stride[2];
      }
    }
  }
}

// One sharded dimension: all_gather writes the shard of `cut_rank` into the whole, scatter reads it
// from there.
CopyBlock cut_block(const Collective& c, int ranks, int cut_rank, bool gather) {
  const ShardExtent cut = shard_extent(c.counts, c.extent, ranks, cut_rank);
  CopyBlock block;
  block.row = cut.size * c.inner;
  block.size[2] = c.outer;
  (gather ? block.from_stride : block.to_stride)[2] = block.row;
  (gather ? block.to_stride : block.from_stride)[2] = cut.total * c.inner;
  (gather ? block.to : block.from) = cut.offset * c.inner;
  return block;
}

// Shard(a) -> Shard(b): `source` has its shard of a and all of b, `target` needs all of a and its
// shard of b.
CopyBlock transposing_block(const Collective& c, int ranks, int source, int target) {
  const ShardExtent a = shard_extent(c.counts, c.extent, ranks, source);
  const ShardExtent b = shard_extent(c.scatter_counts, c.scatter_extent, ranks, target);
  CopyBlock block;
  if (c.gather_first) {  // [outer, a, middle, b, inner]
    block.row = b.size * c.inner;
    block.size = {c.outer, a.size, c.middle};
    const std::int64_t from_row = b.total * c.inner;
    block.from_stride = {a.size * c.middle * from_row, c.middle * from_row, from_row};
    block.to_stride = {a.total * c.middle * block.row, c.middle * block.row, block.row};
    block.from = b.offset * c.inner;
    block.to = a.offset * c.middle * block.row;
  } else {  // [outer, b, middle, a, inner]
    block.row = a.size * c.inner;
    block.size = {c.outer, b.size, c.middle};
    const std::int64_t to_row = a.total * c.inner;
    block.from_stride = {b.total * c.middle * block.row, c.middle * block.row, block.row};
    block.to_stride = {b.size * c.middle * to_row, c.middle * to_row, to_row};
    block.from = b.offset * c.middle * block.row;
    block.to = a.offset * c.inner;
  }
  return block;
}

CopyBlock flat_block(const Collective& from, const Collective& to, int source, int target) {
  const auto before = [](const Counts& counts, int rank) {
    std::int64_t offset = 0;
    for (int r = 0; r < rank; ++r) offset += (*counts)[static_cast<std::size_t>(r)];
    return offset;
  };
  CopyBlock block;
  block.row = (*from.send_counts)[static_cast<std::size_t>(target)];
  block.from = before(from.send_counts, target);
  block.to = before(to.recv_counts, source);
  return block;
}

// The buffers of all ranks at one position; on the stack for usual numbers of ranks.
class Pointers {
 public:
  explicit Pointers(int ranks) {
    if (ranks > kInline) more_.resize(static_cast<std::size_t>(2 * ranks));
    void** base = ranks > kInline ? more_.data() : inline_.data();
    targets = {base, static_cast<std::size_t>(ranks)};
    sources = {const_cast<const void**>(base) + ranks, static_cast<std::size_t>(ranks)};
  }
  std::span<void*> targets;
  std::span<const void*> sources;

 private:
  static constexpr int kInline = 16;
  std::array<void*, 2 * kInline> inline_;
  std::vector<void*> more_;
};

void all_reduce_chunk(const CollectiveOp& op, int ranks, std::uint32_t chunk) {
  const Collective& c = op.entries[0].args;
  const std::int64_t begin = op.first + chunk * op.chunk_elements;
  const std::int64_t count = std::min(op.chunk_elements, op.last - begin);
  if (count <= 0) return;
  Pointers at_begin(ranks);
  std::size_t here = 0;  // ranks of this process
  for (std::size_t r = 0; r < at_begin.sources.size(); ++r) {
    const Collective& args = op.entries[r].args;
    const std::int64_t from = op.entries[r].packed.empty() ? 0 : op.first;
    at_begin.sources[r] = at(args.send, begin - from, size_of(c.dtype));
    if (args.recv != nullptr) at_begin.targets[here++] = at(args.recv, begin, size_of(c.dtype));
  }
  reduce_into(c.dtype, c.reduce, at_begin.sources, at_begin.targets.first(here), count);
}

void reduce_scatter_chunk(const CollectiveOp& op, int ranks, std::uint32_t chunk) {
  const Collective& c = op.entries[0].args;
  const std::size_t width = size_of(c.dtype);
  const int target = static_cast<int>(chunk / op.per_target);
  const ShardExtent cut = shard_extent(c.counts, c.extent, ranks, target);
  const std::int64_t row = cut.size * c.inner;
  std::int64_t position = chunk % op.per_target * op.chunk_elements;
  const std::int64_t end = std::min(position + op.chunk_elements, c.outer * row);
  Pointers pointers(ranks);
  void* recv = op.entries[static_cast<std::size_t>(target)].args.recv;
  if (recv == nullptr) return;  // a rank of another process, or nothing
  while (position < end) {      // row by row: positions count the elements of recv
    const std::int64_t column = position % row;
    const std::int64_t count = std::min(row - column, end - position);
    const std::int64_t from = position / row * cut.total * c.inner + cut.offset * c.inner + column;
    for (std::size_t r = 0; r < pointers.sources.size(); ++r) {
      const Entry& entry = op.entries[r];
      pointers.sources[r] =
          entry.packed.empty()
              ? at(entry.args.send, from, width)
              : at(entry.packed[static_cast<std::size_t>(target)], position, width);
    }
    pointers.targets[0] = at(recv, position, width);
    reduce_into(c.dtype, c.reduce, pointers.sources, pointers.targets.first(1), count);
    position += count;
  }
}

void broadcast_chunk(const CollectiveOp& op, int ranks, std::uint32_t chunk) {
  const Collective& c = op.entries[0].args;
  const std::size_t width = size_of(c.dtype);
  const std::int64_t begin = chunk * op.chunk_elements;
  const std::int64_t count = std::min(op.chunk_elements, c.outer * c.extent * c.inner - begin);
  if (count <= 0) return;
  const void* send = op.entries[static_cast<std::size_t>(c.root)].args.send;
  for (int r = 0; r < ranks; ++r) {
    void* recv = op.entries[static_cast<std::size_t>(r)].args.recv;
    if (recv == nullptr) continue;
    copy_rows(at(recv, begin, width), at(send, begin, width), count, width);
  }
}

std::uint32_t chunks_of(std::int64_t elements, std::int64_t chunk_elements) {
  return static_cast<std::uint32_t>(
      std::max<std::int64_t>(1, (elements + chunk_elements - 1) / chunk_elements));
}

}  // namespace

bool is_one_shot(const Collective& args, int ranks, int rank) {
  return ranks == 1 || args.control_only ||
         larger_bytes(args, ranks, rank) * ranks <= kOneShotBytes;
}

void plan_chunks(CollectiveOp& op, int ranks) {
  const Collective& c = op.entries[0].args;
  const auto n = static_cast<std::uint32_t>(ranks);
  op.chunk_elements = kChunkBytes / static_cast<std::int64_t>(size_of(c.dtype));
  op.per_target = 1;
  op.chunks = 1;
  op.first = 0;
  op.last = c.outer * c.extent * c.inner;
  if (c.control_only && c.kind != CollectiveKind::AllGather) return;
  switch (c.kind) {
    case CollectiveKind::AllReduce:
    case CollectiveKind::Broadcast:
      op.chunks = chunks_of(c.outer * c.extent * c.inner, op.chunk_elements);
      return;
    case CollectiveKind::ReduceScatter:
      for (int r = 0; r < ranks; ++r) {
        const ShardExtent cut = shard_extent(c.counts, c.extent, ranks, r);
        op.per_target =
            std::max(op.per_target, chunks_of(c.outer * cut.size * c.inner, op.chunk_elements));
      }
      op.chunks = n * op.per_target;
      return;
    case CollectiveKind::Scatter: op.chunks = n; return;
    case CollectiveKind::AllGather:
    case CollectiveKind::AllToAll: op.chunks = n * n; return;
    default: return;
  }
}

void cut_to(CollectiveOp& op, std::int64_t first, std::int64_t last) {
  op.first = first;
  op.last = last;
  op.chunks = chunks_of(last - first, op.chunk_elements);
  op.second_half = true;
}

void run_chunk(const CollectiveOp& op, int ranks, std::uint32_t chunk) {
  const Collective& c = op.entries[0].args;
  if (c.control_only) return;
  switch (c.kind) {
    case CollectiveKind::AllReduce: return all_reduce_chunk(op, ranks, chunk);
    case CollectiveKind::Broadcast: return broadcast_chunk(op, ranks, chunk);
    case CollectiveKind::ReduceScatter: return reduce_scatter_chunk(op, ranks, chunk);
    case CollectiveKind::Scatter: return copy_pair(op, ranks, c.root, static_cast<int>(chunk));
    case CollectiveKind::AllGather:
    case CollectiveKind::AllToAll: {
      const int pair = static_cast<int>(chunk);
      return copy_pair(op, ranks, pair / ranks, pair % ranks);
    }
    default: return;
  }
}

CopyBlock block_of(const Collective& from, const Collective& to, int ranks, int source,
                   int target) {
  switch (from.kind) {
    case CollectiveKind::AllGather: return cut_block(from, ranks, source, true);
    case CollectiveKind::Scatter: return cut_block(from, ranks, target, false);
    default:
      return from.send_counts ? flat_block(from, to, source, target)
                              : transposing_block(from, ranks, source, target);
  }
}

void copy_pair(const CollectiveOp& op, int ranks, int source, int target) {
  const Collective& from = op.entries[static_cast<std::size_t>(source)].args;
  const Collective& to = op.entries[static_cast<std::size_t>(target)].args;
  if (from.control_only || to.recv == nullptr) return;
  const CopyBlock block = block_of(from, to, ranks, source, target);
  const auto& packed = op.entries[static_cast<std::size_t>(source)].packed;
  if (packed.empty()) return copy_block(block, from.send, to.recv, size_of(from.dtype));
  copy_block(from_packed(block), packed[static_cast<std::size_t>(target)], to.recv,
             size_of(from.dtype));
}

std::int64_t elements_of(const CopyBlock& block) {
  return block.row * block.size[0] * block.size[1] * block.size[2];
}

CopyBlock from_packed(CopyBlock block) {
  block.from = 0;
  block.from_stride = {block.size[1] * block.size[2] * block.row, block.size[2] * block.row,
                       block.row};
  return block;
}

void pack(CopyBlock block, const void* send, void* to, std::size_t width) {
  block.to = 0;
  block.to_stride = from_packed(block).from_stride;
  copy_block(block, send, to, width);
}

}  // namespace coshard
