#pragma once
// RowwiseParallel: a Linear cut along its input features, or an Embedding along its rows. A value.
//   Linear: weight S(1), bias R, input wanted as S(-1). Embedding: weight S(0), input wanted as R.
#include <coshard/styles/style.h>

namespace coshard {

struct RowwiseParallel {
  Placement input_layouts = Shard(-1);     // of a plain input
  Placement output_layouts = Replicate();  // R: an all_reduce; a shard: a reduce_scatter
  bool use_local_output = true;
  // How the gradients of a plain input, and those of the local output, lie over the ranks: Partial
  // where each rank uses the tensor in a way of its own. Default: as the tensor.
  std::optional<Placement> local_input_grad_placements = std::nullopt;
  std::optional<Placement> local_output_grad_placements = std::nullopt;
  // The partial output is cast to it before it is reduced, and stays so. Later HyperParallel.
  std::optional<DType> reduce_dtype = std::nullopt;

  // Error{BadInput} for any other module.
  void apply(Module& module, const DeviceMesh& mesh, const ParallelizeOptions& options) const;
  friend std::ostream& operator<<(std::ostream& out, const RowwiseParallel& style);
};

}  // namespace coshard
