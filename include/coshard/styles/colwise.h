#pragma once
// ColwiseParallel: shards a Linear, an Embedding or a module that overrides Module::shard_axes
// along its output features. A value.
//   Linear: weight and bias S(0). Embedding: weight S(1). The input must be R.
//   With local shards as output, columns that belong together (FeatureGroups) stay together:
//   _S(0,1,unit) where S(0) would cut them. Where every rank then has all of them, the weight is R,
//   as with NoParallel, and the gradients of the ranks' outputs are summed.
#include <coshard/styles/style.h>

#pragma GCC visibility push(default)
namespace coshard {

struct ColwiseParallel {
  Placement input_layouts = Replicate();  // of a plain input
  Placement output_layouts = Shard(-1);
  bool use_local_output = true;
  // Placements of the gradients of a plain input and of the local output: Partial if each rank uses
  // the tensor differently. Default: the tensor's own.
  std::optional<Placement> local_input_grad_placements = std::nullopt;
  std::optional<Placement> local_output_grad_placements = std::nullopt;
  // Overlap with the all_gather of x and, in backward, with the reduction of dX. Default:
  // ParallelizeOptions::overlap.
  std::optional<Overlap> overlap = std::nullopt;

  // Error{BadInput} for any other module.
  void apply(Module& module, const DeviceMesh& mesh, const ParallelizeOptions& options) const;
};
std::ostream& operator<<(std::ostream& out, const ColwiseParallel& style);

}  // namespace coshard
#pragma GCC visibility pop
