#pragma once
// SequenceParallel: a norm, a Dropout, or any module that treats positions independently, on
// activations sharded along the sequence (Korthikanti et al., 2022). A value.
//   Parameters are R: every rank's own data counts as a replica, nothing is sent. Their gradients
//   stay P(sum) until the optimizer reduces them.
#include <coshard/styles/style.h>

#pragma GCC visibility push(default)
namespace coshard {

struct SequenceParallel {
  int sequence_dim = 1;
  bool use_local_output = false;
  // Placements of the gradients of a plain input and of the local output: Partial if each rank uses
  // the tensor differently. Default: the tensor's own.
  std::optional<Placement> local_input_grad_placements = std::nullopt;
  std::optional<Placement> local_output_grad_placements = std::nullopt;

  // A plain input is this rank's even shard; a DTensor in another layout is redistributed.
  void apply(Module& module, const DeviceMesh& mesh, const ParallelizeOptions& options) const;
};
std::ostream& operator<<(std::ostream& out, const SequenceParallel& style);

}  // namespace coshard
#pragma GCC visibility pop
