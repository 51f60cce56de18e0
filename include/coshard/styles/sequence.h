#pragma once
// SequenceParallel: a norm, a Dropout, or any module that treats positions alike, on activations
// cut along the sequence (Korthikanti et al., 2022). A value.
//   Parameters R: every rank's own data is taken for a replica, nothing is sent. Their gradients
//   stay P(sum) until the optimizer.
#include <coshard/styles/style.h>

namespace coshard {

struct SequenceParallel {
  int sequence_dim = 1;
  bool use_local_output = false;
  // How the gradients of a plain input, and those of the local output, lie over the ranks: Partial
  // where each rank uses the tensor in a way of its own. Default: as the tensor.
  std::optional<Placement> local_input_grad_placements = std::nullopt;
  std::optional<Placement> local_output_grad_placements = std::nullopt;

  // A plain input is this rank's part of an even cut; a DTensor that lies otherwise is
  // redistributed.
  void apply(Module& module, const DeviceMesh& mesh, const ParallelizeOptions& options) const;
  friend std::ostream& operator<<(std::ostream& out, const SequenceParallel& style);
};

}  // namespace coshard
