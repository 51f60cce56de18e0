#pragma once
// SequenceParallel: a norm, a Dropout, or any module that treats positions alike, on activations
// cut along the sequence (Korthikanti et al., 2022). A value.
//   Parameters R: every rank's own data is taken for a replica, nothing is sent. Their gradients
//   stay P(sum) until the optimizer.
#include "styles/style.h"

namespace coshard {

struct SequenceParallel {
  int sequence_dim = 1;
  bool use_local_output = false;

  // A plain input is this rank's part of an even cut; a DTensor that lies otherwise is
  // redistributed.
  void apply(Module& module, const DeviceMesh& mesh, const ParallelizeOptions& options) const;
  friend std::ostream& operator<<(std::ostream& out, const SequenceParallel& style);
};

}  // namespace coshard
