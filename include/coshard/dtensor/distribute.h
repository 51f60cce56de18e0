#pragma once
// Between plain tensors and DTensors: from_local, to_local, full_tensor, distribute_tensor. All but
// distribute_tensor are differentiable. Semantics: torch.distributed.tensor (2.12 for gradients).
// On a rank outside the mesh all of them give empty tensors of shape [0] and issue nothing. The
// forms without a mesh take that of the innermost DefaultMesh; without placements it is Replicate
// along every mesh dimension.
#include <optional>

#include <coshard/dtensor/default_mesh.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/runtime/coro/task.h>

namespace coshard {

struct FromLocalOptions {
  // Logical shape; default: this rank's sizes times the ranks along each shard, which is right for
  // even shards. Ranks that come to other shapes so fail at the next collective of the mesh.
  std::optional<Shape> shape;
  // Strides of the logical tensor. Given with `shape` alone, and only compared: they must order the
  // dimensions as the local tensor's do (see logical_strides).
  std::optional<Strides> stride;
  // All ranks of the mesh compare what they give, and replicas are taken from rank 0 of each mesh
  // dimension. Moves: one small all_gather per mesh dimension, one broadcast per Replicate.
  bool run_check = false;
  // Layout in which the local tensor's gradient is wanted: shards as in `placements`, and R or a
  // Partial where that is R or Partial. Default: `placements` with Partial read as Replicate.
  std::optional<Layout> grad_placements;
};

// Wraps this rank's part; shares its memory unless run_check replaces it.
//   Moves:    nothing, but for run_check.
//   Gradient: redistributed to grad_placements, then this rank's part; the term of a Partial has
//             the share that gradient_of_term (partial.h) says, which costs a P(min), P(max) or
//             P(product) one all_gather.
//   Fails:    Error{BadInput}: a DTensor; a layout with more or fewer entries than the mesh, a dim
//             the tensor lacks; a local shape that is not what torch.chunk gives this rank (on that
//             rank alone); with run_check, on all ranks alike: shapes or dtypes that do not fit
//             each other, shards that do not fit `shape`.
DTensor from_local(const Tensor& local, const DeviceMesh& mesh,
                   CallSite site = CallSite::current());
DTensor from_local(const Tensor& local, CallSite site = CallSite::current());
DTensor from_local(const Tensor& local, const DeviceMesh& mesh, const Layout& placements,
                   const FromLocalOptions& options = {}, CallSite site = CallSite::current());
DTensor from_local(const Tensor& local, const Layout& placements,
                   const FromLocalOptions& options = {}, CallSite site = CallSite::current());

// This rank's part as a plain tensor (in flight if the DTensor is). grad_placements: how the
// per-rank gradients are to be read; shards as in the tensor's layout; default: that layout,
// Partial read as Replicate. No communication.
Tensor to_local(const DTensor& tensor, std::optional<Layout> grad_placements = std::nullopt);

// The logical tensor on every rank, ready: waits in place. Redistributes to Replicate on every mesh
// dimension. grad_placements as for to_local, of that replica.
Tensor full_tensor(const DTensor& tensor, std::optional<Layout> grad_placements = std::nullopt,
                   CallSite site = CallSite::current());

// Cuts a full tensor of the same shape on all ranks; a DTensor that lies so already is returned.
// Waits in place for what is sent; where that is refused (run_on_asio.h), issue_distribution does
// not.
//   src_data_rank: the rank of each mesh dimension whose data are taken; nullopt: every rank cuts
//             its own.
//   Moves:    per mesh dimension a scatter (Shard) or a broadcast (the rest); nothing for nullopt.
//   Partial:  the value is split so that its reduction is the tensor (partial.h).
//   Gives:    a leaf with the input's requires_grad and memory of its own; a DTensor that lies so
//             already, itself.
//   Fails:    Error{BadInput}: a DTensor that lies otherwise; a tensor that an operator made with
//             the tape on (no leaf), since this is not differentiated; a layout with more or fewer
//             entries than the mesh, a dim the tensor lacks, a src_data_rank that is not one of
//             every mesh dimension.
DTensor distribute_tensor(const Tensor& full, const DeviceMesh& mesh,
                          CallSite site = CallSite::current());
DTensor distribute_tensor(const Tensor& full, CallSite site = CallSite::current());
DTensor distribute_tensor(const Tensor& full, const DeviceMesh& mesh, const Layout& placements,
                          std::optional<int> src_data_rank = 0,
                          CallSite site = CallSite::current());
DTensor distribute_tensor(const Tensor& full, const Layout& placements,
                          std::optional<int> src_data_rank = 0,
                          CallSite site = CallSite::current());

// The same, returned at once and in flight: `full` is not to be changed until it is there, which
// co_await arrival_of({result}) awaits (redistribute.h).
DTensor issue_distribution(const Tensor& full, const DeviceMesh& mesh, const Layout& placements,
                           std::optional<int> src_data_rank = 0,
                           CallSite site = CallSite::current());

// The strides of the logical tensor if its memory is ordered like this rank's part: [8,4] of
// strides (1,8) in S(1) on 2 ranks is part of [8,8] of strides (1,8); in S(0), of [16,4] of (1,16).
Strides logical_strides(const DTensor& tensor);

// How errors of this family begin: a defined mesh, one entry per mesh dimension.
void require_layout_of(const DeviceMesh& mesh, const Layout& placements, const char* what);

// Replicate along every dimension of a defined mesh.
Layout whole_on(const DeviceMesh& mesh);

}  // namespace coshard
