#pragma once
// ColwiseParallel: a Linear or Embedding cut along its output features. A value.
//   Linear: weight and bias S(0). Embedding: weight S(1). Input wanted as R.
#include <coshard/styles/style.h>

namespace coshard {

struct ColwiseParallel {
  Placement input_layouts = Replicate();  // of a plain input
  Placement output_layouts = Shard(-1);
  bool use_local_output = true;
  // How the gradients of a plain input, and those of the local output, lie over the ranks: Partial
  // where each rank uses the tensor in a way of its own. Default: as the tensor.
  std::optional<Placement> local_input_grad_placements = std::nullopt;
  std::optional<Placement> local_output_grad_placements = std::nullopt;

  // Error{BadInput} for any other module.
  void apply(Module& module, const DeviceMesh& mesh, const ParallelizeOptions& options) const;
  friend std::ostream& operator<<(std::ostream& out, const ColwiseParallel& style);
};

}  // namespace coshard
