#pragma once
// NoParallel: a replicated module between sharded ones (a router, a gate). A value.
//   All parameters are R, broadcast from src_data_rank: DTensors like their neighbours', so that an
//   optimizer or a norm over all parameters sees one mesh. (TorchTitan, HyperParallel.)
//   The output stays a DTensor, so that its gradient has a known layout. A local output that each
//   rank uses differently (its experts' scores) needs local_output_grad_placements = Partial();
//   without it the gradients of replicas differ, which the optimizer reports at its first step.
#include <coshard/styles/style.h>

#pragma GCC visibility push(default)
namespace coshard {

struct NoParallel {
  Placement input_layout = Replicate();  // of a plain first input
  Placement desired_input_layout = Replicate();
  Placement output_layout = Replicate();
  bool use_local_output = false;
  // Placements of the gradients of a plain input and of the local output: Partial if each rank uses
  // the tensor differently. Default: the tensor's own.
  std::optional<Placement> local_input_grad_placements = std::nullopt;
  std::optional<Placement> local_output_grad_placements = std::nullopt;

  // Any module. Prepares the first positional input and the first output and leaves others alone. A
  // DTensor's own layout takes precedence.
  void apply(Module& module, const DeviceMesh& mesh, const ParallelizeOptions& options) const;
};
std::ostream& operator<<(std::ostream& out, const NoParallel& style);

}  // namespace coshard
#pragma GCC visibility pop
