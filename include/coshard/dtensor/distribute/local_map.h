#pragma once
// local_map: applies a function of local tensors to DTensors. Rank's thread.
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <coshard/dtensor/distribute/distribute.h>

#pragma GCC visibility push(default)
namespace coshard {

// One layout per tensor; nullopt: a plain tensor.
using OptionalLayouts = std::vector<std::optional<Layout>>;

struct LocalMapOptions {
  // One per output: how to read the local results. nullopt: that output stays plain.
  OptionalLayouts out_placements = {};
  // One per input: the layout a DTensor must have. Default: whatever it has.
  std::optional<OptionalLayouts> in_placements = std::nullopt;
  // One per input: how to read the function's gradients (to_local's grad_placements); nullopt: the
  // input's layout, Partial read as Replicate.
  std::optional<OptionalLayouts> in_grad_placements = std::nullopt;
  // One per output: its logical shape, or nullopt. Default: a sharded dimension has the size of an
  // input's dimension that is sharded alike and as long on this rank; shards are even if there is
  // none.
  std::vector<std::optional<Shape>> out_shapes = {};
  DeviceMesh device_mesh = {};  // of the outputs; default: that of the first DTensor
  // Redistributes DTensors that have another layout; all redistributes are issued before the first
  // is awaited.
  bool redistribute_inputs = false;
};

// Calls `fn` with the local tensors and wraps its results into DTensors
// (torch.distributed.tensor.experimental.local_map). Differentiable; inputs may be on several
// meshes. Plain inputs are passed through; if no input is a DTensor, nothing is wrapped.
//   Moves: the collectives that fn issues, and the redistributes of inputs.
//   Fails: Error{BadInput}: a list whose length is not that of the inputs or outputs; a DTensor
//          without a layout in in_placements, or in another layout without redistribute_inputs; an
//          output that is already a DTensor, or is undefined where a layout is given; one whose
//          size is ambiguous, or is not this rank's shard of out_shapes. Ranks that derive different
//          sizes fail at the next collective of the mesh.
std::vector<Tensor> local_map(const std::function<std::vector<Tensor>(std::span<const Tensor>)>& fn,
                              std::span<const Tensor> inputs, const LocalMapOptions& options,
                              CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
