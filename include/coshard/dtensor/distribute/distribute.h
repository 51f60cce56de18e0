#pragma once
// distribute_tensor: shards a tensor that a rank has whole. Not differentiable. Semantics follow
// torch.distributed.tensor. On a rank outside the mesh it returns an empty tensor of shape [0] and
// issues nothing. Overloads without a mesh use that of the innermost DefaultMesh; without
// placements, Replicate along every mesh dimension.
#include <optional>

#include <coshard/dtensor/ops/from_local.h>

#pragma GCC visibility push(default)
namespace coshard {

// Shards a full tensor, whose shape must be the same on every rank. Waits in place for the
// transfer; where waiting in place is not allowed (run_on_asio.h), use issue_distribution.
//   src_data_rank: the rank of each mesh dimension whose data are used; nullopt: every rank shards
//                  its own data.
//   Moves:    per mesh dimension one scatter (Shard) or broadcast (otherwise); nothing for nullopt.
//   Partial:  the value is split into partial values that reduce to it (partial.h).
//   Returns:  a leaf with the input's requires_grad and its own memory; a DTensor that already has
//             this layout is returned as is.
//   Fails:    Error{BadInput}: a DTensor in another layout; a tensor that is not a leaf, because
//             this is not differentiable; a layout with more or fewer entries than the mesh, or
//             with a dim the tensor lacks; a src_data_rank outside some mesh dimension.
DTensor distribute_tensor(const Tensor& full, const DeviceMesh& mesh,
                          CallSite site = CallSite::current());
DTensor distribute_tensor(const Tensor& full, CallSite site = CallSite::current());
DTensor distribute_tensor(const Tensor& full, const DeviceMesh& mesh, const Layout& placements,
                          std::optional<int> src_data_rank = 0,
                          CallSite site = CallSite::current());
DTensor distribute_tensor(const Tensor& full, const Layout& placements,
                          std::optional<int> src_data_rank = 0,
                          CallSite site = CallSite::current());

// The same, but returns at once with the result in flight. `full` must not change until the data
// have arrived, for which co_await arrival_of({result}) waits (redistribute.h).
DTensor issue_distribution(const Tensor& full, const DeviceMesh& mesh, const Layout& placements,
                           std::optional<int> src_data_rank = 0,
                           CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
