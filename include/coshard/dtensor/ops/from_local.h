#pragma once
// Conversions between plain tensors and DTensors: from_local, to_local, full_tensor, which are
// differentiable. Semantics follow torch.distributed.tensor (2.12 for gradients). On a rank outside
// the mesh all of them return empty tensors of shape [0] and issue nothing. Overloads without a
// mesh use that of the innermost DefaultMesh; without placements, Replicate along every mesh
// dimension.
#include <optional>

#include <coshard/dtensor/mesh/default_mesh.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/runtime/coro/task.h>

#pragma GCC visibility push(default)
namespace coshard {

struct FromLocalOptions {
  // Logical shape. Default: this rank's sizes times the number of ranks along each shard, which is
  // right for even shards; ranks that derive different shapes fail at the next collective of the
  // mesh.
  std::optional<Shape> shape;
  // Strides of the logical tensor, the same on all ranks. Allowed only together with `shape`: they
  // must order the dimensions as the local tensor's do, with gaps only if it has some (see
  // logical_strides). Default: told from the local tensor; unknown where parts are uneven and it
  // has gaps, or some rank has one element or none along a dimension of which others have more.
  // Then what would be a view on one device if strides allow it is a copy, which cannot be written
  // in place, nor used once the tensor has been.
  std::optional<Strides> stride;
  // All ranks of the mesh compare their arguments, and replicas are taken from rank 0 of each mesh
  // dimension. Moves: one small all_gather per mesh dimension, one broadcast per Replicate.
  bool run_check = false;
  // Layout for the local tensor's gradient: the same shards as `placements`; R or a Partial where
  // `placements` has R or a Partial. Default: `placements` with Partial read as Replicate.
  std::optional<Layout> grad_placements;
};

// Wraps this rank's local tensor; shares its memory unless run_check replaces it.
//   Moves:    nothing, except for run_check.
//   Gradient: redistributed to grad_placements; then this rank's local tensor. Under a Partial it
//             is scaled as gradient_of_partial (partial.h) says, which takes one all_gather for
//             P(min), P(max) and P(product).
//   Fails:    Error{BadInput}: a DTensor; a layout with more or fewer entries than the mesh, or
//             with a dim the tensor lacks; a local shape that differs from what torch.chunk gives
//             this rank (on that rank alone). With run_check, on all ranks: shapes or dtypes that
//             do not match across ranks, or shards that do not match `shape`.
DTensor from_local(const Tensor& local, const DeviceMesh& mesh,
                   CallSite site = CallSite::current());
DTensor from_local(const Tensor& local, CallSite site = CallSite::current());
DTensor from_local(const Tensor& local, const DeviceMesh& mesh, const Layout& placements,
                   const FromLocalOptions& options = {}, CallSite site = CallSite::current());
DTensor from_local(const Tensor& local, const Layout& placements,
                   const FromLocalOptions& options = {}, CallSite site = CallSite::current());

// This rank's local tensor as a plain tensor, in flight if the DTensor is. No communication. Of a
// view that had to be copied (slice in ops_view.h), it is the copy's memory as it is now: writes to
// what that shows do not reach it.
// grad_placements: how to read the per-rank gradients; must have the tensor's shards. Default: the
// tensor's layout with Partial read as Replicate. Backward fails with Error{BadInput} where that
// reads a gradient as Replicate that was computed from shards or terms of the same dimension.
Tensor to_local(const DTensor& tensor, std::optional<Layout> grad_placements = std::nullopt);

// Says that a tensor differs by rank along a dimension of a mesh, in place, and returns it. What
// comes out of to_local() of a Shard or a Partial is known to, with all that is computed from it;
// what a loader reads, or a rank slices for itself, is not.
//   Of a parameter: each rank trains its own. Its gradient is not compared with the other ranks'
//             (Optimizer), and clip_grad_norm sums its norm over the dimension.
//   Moves:    nothing.
//   Fails:    Error{BadInput}: a DTensor with a layout along that dimension.
Tensor varies(const Tensor& tensor, const DeviceMesh& mesh, int dim,
              CallSite site = CallSite::current());

// The logical tensor on every rank: redistributes to Replicate on every mesh dimension and waits in
// place. grad_placements: as for to_local, of the replicated tensor.
Tensor full_tensor(const DTensor& tensor, std::optional<Layout> grad_placements = std::nullopt,
                   CallSite site = CallSite::current());

// The strides that the tensor would have on one device, equal on all ranks: row-major, or those of
// the view that it is. After from_local, from the order of the local tensor's dimensions: a shard
// [8,4] with strides (1,8) under S(1) on 2 ranks belongs to [8,8] with strides (1,8); under S(0),
// to [16,4] with strides (1,16). Error{BadInput} if they are unknown (FromLocalOptions::stride).
Strides logical_strides(const DTensor& tensor);

// Error{BadInput} that starts with `what`: an undefined mesh, or not one entry per mesh dimension.
void require_layout_of(const DeviceMesh& mesh, const Layout& placements, const char* what);

// Replicate along every dimension of the mesh, which must be defined.
Layout whole_on(const DeviceMesh& mesh);

}  // namespace coshard
#pragma GCC visibility pop
