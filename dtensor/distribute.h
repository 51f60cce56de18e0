#pragma once
// Between plain tensors and DTensors: from_local, to_local, full_tensor, distribute_tensor. All but
// distribute_tensor are differentiable. Semantics: torch.distributed.tensor (2.12 for gradients).
#include <optional>

#include "dtensor/redistribute/redistribute.h"
#include "runtime/coro/task.h"

namespace coshard {

struct FromLocalOptions {
  std::optional<Shape>
      shape;  // logical shape; default: this rank's sizes times the ranks along each shard
  bool run_check = false;  // take replicas from rank 0 of each mesh dimension (one broadcast each)
  std::optional<Layout> grad_placements;  // layout in which the local tensor's gradient is wanted
};

// Wraps this rank's part. No communication unless run_check. Error{BadInput}: the local shape is
// not what torch.chunk gives this rank, a layout with more or fewer entries than the mesh, a
// DTensor as input. Gradient: redistributed to `placements` with Partial read as Replicate, then
// this rank's part.
DTensor from_local(const Tensor& local, const DeviceMesh& mesh, const Layout& placements,
                   const FromLocalOptions& options = {});

// This rank's part as a plain tensor (in flight if the DTensor is). grad_placements: how the
// per-rank gradients are to be read; default: the own layout, Partial read as Replicate. No
// communication forward.
Tensor to_local(const DTensor& tensor, std::optional<Layout> grad_placements = std::nullopt);

// The logical tensor on every rank, ready. Redistributes to Replicate on every mesh dimension.
Tensor full_tensor(const DTensor& tensor, std::optional<Layout> grad_placements = std::nullopt);

// Cuts a full tensor: Shard -> scatter, Replicate -> broadcast from `src_data_rank` of each mesh
// dimension; nullopt: every rank cuts its own data, nothing is sent. Partial: the value is split so
// that its reduction is the tensor. Returns a leaf with the input's requires_grad.
DTensor distribute_tensor(const Tensor& full, const DeviceMesh& mesh, const Layout& placements,
                          std::optional<int> src_data_rank = 0);

}  // namespace coshard
