#pragma once
// NoParallel: a module that is not cut, between modules that are (a router, a gate). A value.
//   All parameters R, broadcast from src_data_rank: they are DTensors like their neighbours', so
//   that an optimizer or a norm over all parameters sees one mesh. (TorchTitan, HyperParallel.)
#include "styles/style.h"

namespace coshard {

struct NoParallel {
  Placement input_layout = Replicate();  // of a plain first input
  Placement desired_input_layout = Replicate();
  Placement output_layout = Replicate();
  bool use_local_output = true;

  // Any module. The first input by position and the first output are prepared; further ones are
  // left alone. A DTensor is judged by its own layout.
  void apply(Module& module, const DeviceMesh& mesh, const ParallelizeOptions& options) const;
  friend std::ostream& operator<<(std::ostream& out, const NoParallel& style);
};

}  // namespace coshard
