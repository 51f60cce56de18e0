#pragma once
// Sizes, validation, fingerprint and text of a Collective, for every back end. Pure functions of
// the arguments; any thread.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <coshard/runtime/comm/communicator.h>

namespace coshard {

constexpr bool is_point_to_point(CollectiveKind kind) {
  return kind == CollectiveKind::Send || kind == CollectiveKind::Recv;
}
// A launch of a graph (Collective::launched).
inline bool is_launch(const Collective& collective) {
  return collective.kind == CollectiveKind::Barrier && collective.extent > 0;
}
constexpr bool is_reduction(CollectiveKind kind) {
  return kind == CollectiveKind::AllReduce || kind == CollectiveKind::ReduceScatter;
}

// One rank's part of a sharded dimension, in positions.
struct ShardExtent {
  std::int64_t size = 0, offset = 0, total = 0;
};
ShardExtent shard_extent(const Counts& counts, std::int64_t extent, int ranks, int rank);

// Elements of the buffers of `rank`; for broadcast and scatter only the root has a send buffer.
std::int64_t send_elements(const Collective& collective, int ranks, int rank);
std::int64_t recv_elements(const Collective& collective, int ranks, int rank);
// Bytes of the larger of the two buffers.
std::int64_t larger_bytes(const Collective& collective, int ranks, int rank);

// Error{BadInput} names the mismatch.
void check(const Collective& collective, int ranks, int rank);
// The part of it that no rank is needed for: whether the dtype can be reduced so.
void check_reduction(const Collective& collective);

// Equal on ranks that issue the same collective: kind, dtype, reduction, root, geometry and counts.
// The counts of a flat all_to_all differ per rank and are compared pairwise instead
// (flat_counts_agree).
std::uint64_t fingerprint(const Collective& collective, int ranks);
bool flat_counts_agree(const Collective& from, int from_rank, const Collective& to, int to_rank);
std::uint64_t mix(std::uint64_t hash, std::uint64_t value);
// Of each collective of a graph, what ranks that launch it compare.
std::vector<std::uint64_t> fingerprints(const std::vector<Collective>& launched, int ranks);
// The launch of a graph of these, as one control-only collective.
Collective launch_of(std::shared_ptr<const std::vector<Collective>> launched, int ranks);

std::string describe(const Collective& collective, int ranks);  // "all_gather f32 [1, 3+5, 64]"
std::string_view file_name_of(const CallSite& where);
std::string location_of(const CallSite& where);  // "train.cpp:88"
// " at train.cpp:88, in matmul, module layers.0.mlp"; unknown parts are left out.
std::string location_text(const CallLocation& place);
inline std::string location_text(const Collective& c) {
  return location_text(CallLocation{c.where, c.operation, c.module});
}

}  // namespace coshard
