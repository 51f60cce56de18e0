#pragma once
// Decides whether an overlapped schedule is faster than the plain one, with a model of the link and
// the GEMMs. Pure: integer arithmetic on what all ranks know, so that they choose alike.
#include <cstdint>
#include <optional>

#include <coshard/dtensor/mesh/device_mesh.h>
#include <coshard/dtensor/ops/overlap.h>
#include "runtime/cost/gemm.h"

namespace coshard {

// A matmul whose rows are sharded over the ranks, and the collective before or after it.
struct OverlapCase {
  int ranks = 1;
  std::int64_t products = 1;      // GEMMs in which one shard is computed
  std::int64_t rows = 0;          // of a GEMM that computes the largest shard
  std::int64_t row_ns_x1024 = 0;  // to compute a row of such a GEMM, in 1/1024 ns; 0: by `gemm`
  std::int64_t whole_ns = 0;      // the GEMMs of the plain schedule; 0: by `gemm`
  GemmModel gemm = {};            // of [rows, k] @ [k, n]
  std::int64_t n = 0, k = 0;
  std::int64_t latency_ns = 0;  // of a collective
  std::int64_t shard_ns = 0;    // transfer time of a shard, without latency
  // A gather by shards takes one round of this time for each shard of another rank; 0: one
  // collective brings them one by one.
  std::int64_t round_ns = 0;
  std::int64_t contention_x1024 = 0;  // Link::contention
  std::int64_t meanwhile_ns = 0;      // other work that may be done while waiting
};

// The collective that a schedule splits; part of the fingerprint of its collectives.
enum class ScheduleKind : std::uint8_t { Gather, Scatter, Reduce };

struct Schedule {
  int pieces = 0;                     // into which a shard is split; 0: the plain schedule
  std::int64_t ns = 0, plain_ns = 0;  // predicted, including meanwhile_ns
  std::int64_t exposed_ns = 0;        // waiting time without other work
  explicit operator bool() const { return pieces > 0; }
};

// An all_gather whose shards are multiplied as they arrive.
Schedule gather_schedule(const OverlapCase& of, Overlap overlap);
// A matmul whose rows are sent to the ranks that sum them.
Schedule scatter_schedule(const OverlapCase& of, Overlap overlap);
// A matmul whose result is all_reduced in pieces; a shard is 1/ranks of it.
Schedule reduce_schedule(const OverlapCase& of, Overlap overlap);

// Has the communicator's next collective compare the choice with that of the peers: ranks that
// chose differently get an error that names both. Does nothing for the plain schedule.
void note_schedule(Communicator& communicator, ScheduleKind kind, int pieces);

// The link along dimension m of a mesh, if known: emulated, set or measured. Without one the plain
// schedule is chosen: ranks in shared memory copy data themselves, so there is nothing to overlap.
std::optional<Link> known_link(const DeviceMesh& mesh, int m);
// The link of the rounds of a gather by shards (Collective::by_shards) on a link of the mesh: as
// calibrated, else `link`. nullopt: one collective brings the shards one by one.
std::optional<Link> round_link(const DeviceMesh& mesh, const Link& link);
// The GEMMs of a rank of the mesh: as calibrated, else at a constant rate.
GemmModel gemm_model(const DeviceMesh& mesh, DType dtype);

}  // namespace coshard
