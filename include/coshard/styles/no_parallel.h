#pragma once
// NoParallel: a module that is not cut, between modules that are (a router, a gate). A value.
//   All parameters R, broadcast from src_data_rank: they are DTensors like their neighbours', so
//   that an optimizer or a norm over all parameters sees one mesh. (TorchTitan, HyperParallel.)
//   The output stays a DTensor, so that its gradient says what it is. A local output that each rank
//   uses in a way of its own (its experts' scores) needs local_output_grad_placements = Partial():
//   without it the gradients of the replicas differ, which the optimizer finds at its first step.
#include <coshard/styles/style.h>

namespace coshard {

struct NoParallel {
  Placement input_layout = Replicate();  // of a plain first input
  Placement desired_input_layout = Replicate();
  Placement output_layout = Replicate();
  bool use_local_output = false;
  // How the gradients of a plain input, and those of the local output, lie over the ranks: Partial
  // where each rank uses the tensor in a way of its own. Default: as the tensor.
  std::optional<Placement> local_input_grad_placements = std::nullopt;
  std::optional<Placement> local_output_grad_placements = std::nullopt;

  // Any module. The first input by position and the first output are prepared; further ones are
  // left alone. A DTensor is judged by its own layout.
  void apply(Module& module, const DeviceMesh& mesh, const ParallelizeOptions& options) const;
  friend std::ostream& operator<<(std::ostream& out, const NoParallel& style);
};

}  // namespace coshard
