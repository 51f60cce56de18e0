#pragma once
// RowwiseParallel: shards a Linear along its input features, an Embedding along its rows, or a
// module that overrides Module::shard_axes. A value.
//   Linear: weight S(1), bias R, input S(-1). Embedding: weight S(0), input R. Features of the input
//   that belong together (FeatureGroups) stay together: _S(1,1,unit) where S(1) would cut them.
#include <coshard/styles/style.h>

#pragma GCC visibility push(default)
namespace coshard {

struct RowwiseParallel {
  Placement input_layouts = Shard(-1);     // of a plain input
  Placement output_layouts = Replicate();  // R: an all_reduce; a shard: a reduce_scatter
  bool use_local_output = true;
  // Placements of the gradients of a plain input and of the local output: Partial if each rank uses
  // the tensor differently. Default: the tensor's own.
  std::optional<Placement> local_input_grad_placements = std::nullopt;
  std::optional<Placement> local_output_grad_placements = std::nullopt;
  // The partial output is cast to this dtype before the reduction, and keeps it. As in later
  // HyperParallel.
  std::optional<DType> reduce_dtype = std::nullopt;
  // Overlap with the collectives of x and y and, in backward, of dY. Default:
  // ParallelizeOptions::overlap.
  std::optional<Overlap> overlap = std::nullopt;

  // Error{BadInput} for any other module.
  void apply(Module& module, const DeviceMesh& mesh, const ParallelizeOptions& options) const;
};
std::ostream& operator<<(std::ostream& out, const RowwiseParallel& style);

}  // namespace coshard
#pragma GCC visibility pop
