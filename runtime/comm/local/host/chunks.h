#pragma once
// Splits an op into chunks and executes them: each chunk reads the senders' buffers and writes the
// receivers' buffers. Chunks write disjoint memory; any rank may run any of them, on its own
// thread.
#include <array>
#include <cstdint>

#include "runtime/comm/local/host/collective_op.h"

namespace coshard {

// Up to this many bytes, over all ranks, the last rank to arrive runs the whole op at once.
// Measured: waking a helper costs 5 to 50 us, in which one core moves more than this.
constexpr std::int64_t kOneShotBytes = 128 * 1024;
// Bytes of one rank's buffer per chunk: several chunks per rank for balance, each well inside L2.
constexpr std::int64_t kChunkBytes = 128 * 1024;

// The data that a source sends to a target: up to three nested loops over rows of `row` contiguous
// elements, with the strides of both sides.
struct CopyBlock {
  std::array<std::int64_t, 3> size{1, 1, 1}, from_stride{}, to_stride{};
  std::int64_t row = 0, from = 0, to = 0;  // elements
};
// For all_gather, scatter and all_to_all; `from` and `to`: the calls of the two ranks.
CopyBlock block_of(const Collective& from, const Collective& to, int ranks, int source, int target);

std::int64_t elements_of(const CopyBlock& block);
// The same block, read from a packed (contiguous) copy.
CopyBlock from_packed(CopyBlock block);
// Packs the block contiguously at `to`.
void pack(CopyBlock block, const void* send, void* to, std::size_t width);

// The result overwrites what is sent.
inline bool is_in_place(const Collective& args) {
  return args.send != nullptr && args.send == args.recv;
}
bool is_one_shot(const Collective& args, int ranks, int rank);
// Sets chunks, chunk_elements and per_target of an op whose ranks have all arrived.
void plan_chunks(CollectiveOp& op, int ranks);
// For an all_reduce that is summed in several processes: restricts the op to the elements summed
// here.
void cut_to(CollectiveOp& op, std::int64_t first, std::int64_t last);
void run_chunk(const CollectiveOp& op, int ranks, std::uint32_t chunk);
// Copies the block from `source` to `target`.
void copy_pair(const CollectiveOp& op, int ranks, int source, int target);

}  // namespace coshard
