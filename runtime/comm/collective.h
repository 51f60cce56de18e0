#pragma once
// What every back end needs to know of a Collective: its sizes, whether it is well formed, its
// fingerprint and its text. Pure functions of the arguments; any thread.
#include <cstdint>
#include <string>

#include <coshard/runtime/comm/communicator.h>

namespace coshard {

constexpr bool is_point_to_point(CollectiveKind kind) {
  return kind == CollectiveKind::Send || kind == CollectiveKind::Recv;
}
constexpr bool is_reduction(CollectiveKind kind) {
  return kind == CollectiveKind::AllReduce || kind == CollectiveKind::ReduceScatter;
}

// One rank's piece of a cut dimension, in positions.
struct Cut {
  std::int64_t size = 0, offset = 0, total = 0;
};
Cut cut_of(const Counts& counts, std::int64_t extent, int ranks, int rank);

// Elements of the buffers of `rank`; what is not the root's in broadcast and scatter has no send
// buffer.
std::int64_t send_elements(const Collective& collective, int ranks, int rank);
std::int64_t recv_elements(const Collective& collective, int ranks, int rank);
// Bytes of the larger of the two buffers.
std::int64_t larger_bytes(const Collective& collective, int ranks, int rank);

// Error{BadInput} that names what does not fit.
void check(const Collective& collective, int ranks, int rank);

// Equal on ranks that mean the same collective: kind, dtype, reduction, root, geometry and counts.
// The counts of the flat all_to_all differ per rank and are compared pairwise instead
// (flat_counts_agree).
std::uint64_t fingerprint(const Collective& collective, int ranks);
bool flat_counts_agree(const Collective& from, int from_rank, const Collective& to, int to_rank);
std::uint64_t mix(std::uint64_t hash, std::uint64_t value);

std::string describe(const Collective& collective, int ranks);  // "all_gather f32 [1, 3+5, 64]"
std::string place(const CallSite& where);                       // "train.cpp:88"
// " at train.cpp:88, in matmul, module layers.0.mlp"; what is not known is left out.
std::string place_text(const Place& place);
inline std::string place_text(const Collective& c) {
  return place_text(Place{c.where, c.operation, c.module});
}

}  // namespace coshard
