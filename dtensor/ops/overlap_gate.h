#pragma once
// Whether an overlapped schedule is faster than the plain one, by a model of the link and of the
// products. Pure: integer arithmetic on what all ranks know, so that they choose alike.
#include <cstdint>
#include <optional>

#include <coshard/dtensor/device_mesh.h>
#include <coshard/dtensor/ops/overlap.h>

namespace coshard {

// One product whose rows are shards of the ranks, and the collective before or after it.
struct OverlapCase {
  int ranks = 1;
  std::int64_t products = 1;      // GEMMs in which one shard is computed
  std::int64_t rows = 0;          // of a GEMM that computes the largest shard
  std::int64_t row_ns_x1024 = 0;  // to compute a row of such a GEMM, in 1/1024 ns
  std::int64_t latency_ns = 0;    // of a collective
  std::int64_t shard_ns = 0;      // a shard on its link, without latency
  std::int64_t meanwhile_ns = 0;  // other work that may be done while waiting
};

struct Schedule {
  int pieces = 0;                     // in which a shard is sent; 0: the plain schedule
  std::int64_t ns = 0, plain_ns = 0;  // predicted, with the work meanwhile
  std::int64_t exposed_ns = 0;        // how long it waits if nothing is done meanwhile
  explicit operator bool() const { return pieces > 0; }
};

// An all_gather whose shards are multiplied as they arrive.
Schedule gather_schedule(const OverlapCase& of, Overlap overlap);
// A product whose rows are sent to the ranks that add them up.
Schedule scatter_schedule(const OverlapCase& of, Overlap overlap);
// A product that is all_reduced in pieces; a shard is 1/ranks of it.
Schedule reduce_schedule(const OverlapCase& of, Overlap overlap);

// The model of a GEMM [rows, k] @ [k, n] on a device with so many threads.
struct GemmSize {
  std::int64_t rows, n, k;
};
std::int64_t gemm_ns(DeviceKind device, int threads, const GemmSize& size, DType dtype);

// The link along dimension m of a mesh, as far as it is known: emulated, set or measured. Without a
// value the plain schedule is chosen: ranks that share a memory copy their data themselves, and
// have nothing to overlap with.
std::optional<LinkCost> known_link(const DeviceMesh& mesh, int m);

}  // namespace coshard
