#pragma once
// local_map: a function on local tensors, called with DTensors. Rank's thread.
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <coshard/dtensor/distribute.h>

namespace coshard {

// A layout per tensor; nullopt: the tensor is none of a DTensor's.
using OptionalLayouts = std::vector<std::optional<Layout>>;

struct LocalMapOptions {
  // One per output: how the local results are to be read. nullopt: that output stays plain.
  OptionalLayouts out_placements = {};
  // One per input: how a DTensor must lie. Not given: as it lies.
  std::optional<OptionalLayouts> in_placements = std::nullopt;
  // One per input: how the function's gradients of it are to be read (to_local's
  // grad_placements); nullopt: as the input lies, Partial read as Replicate.
  std::optional<OptionalLayouts> in_grad_placements = std::nullopt;
  DeviceMesh device_mesh = {};  // of the outputs; default: that of the first DTensor
  // DTensors that lie otherwise are redistributed; all redistributes are issued before the first
  // is waited for.
  bool redistribute_inputs = false;
};

// Calls `fn` with this rank's parts and wraps what it gives, as even parts, into DTensors
// (torch.distributed.tensor.experimental.local_map). Differentiable; inputs may lie on several
// meshes. Plain inputs are handed on as they are; without any DTensor among the inputs nothing is
// wrapped. Communicates what fn does, and the inputs' redistributes. Error{BadInput}: lists whose
// lengths differ from the inputs' or outputs', a DTensor without a layout in in_placements, one
// that lies otherwise without redistribute_inputs, an output that is a DTensor already or is
// missing where a layout is given.
std::vector<Tensor> local_map(const std::function<std::vector<Tensor>(std::span<const Tensor>)>& fn,
                              std::span<const Tensor> inputs, const LocalMapOptions& options,
                              CallSite site = CallSite::current());

}  // namespace coshard
