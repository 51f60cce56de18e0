#include <coshard/styles/sequence.h>

#include "styles/prepare.h"

namespace coshard {

void SequenceParallel::apply(Module& module, const DeviceMesh& mesh,
                             const ParallelizeOptions&) const {
  require_one_dimension(mesh, "SequenceParallel");
  module.claim("parallelized");
  Ties ties(module);
  for (const NamedParameter& p : module.named_parameters()) replicate_parameter(*p.slot, mesh);
  ties.restore();
  module.add_pre_hook([style = *this, mesh](Module& self, Inputs& inputs) {
    Tensor& x = only_input(self, inputs, "SequenceParallel");
    const Placement cut = Shard(style.sequence_dim);
    x = bring_to(as_distributed(self, x, mesh, cut, style.local_input_grad_placements), cut);
  });
  module.add_post_hook([style = *this](Module& self, Outputs& outputs) {
    for (Tensor& y : outputs)  // operators choose layouts by size
      if (y.defined() && y.is_distributed() && style.sequence_dim < y.ndim())
        y = bring_to(y, Shard(style.sequence_dim));
    if (!style.use_local_output) return;
    Tensor& y = only_output(self, outputs, "SequenceParallel");
    y = as_local(y, style.local_output_grad_placements);
  });
}

std::ostream& operator<<(std::ostream& out, const SequenceParallel& style) {
  return out << "SequenceParallel(sequence_dim=" << std::to_string(style.sequence_dim)
             << ", use_local_output=" << (style.use_local_output ? "true" : "false")
             << given_text("local_input_grad_placements", style.local_input_grad_placements)
             << given_text("local_output_grad_placements", style.local_output_grad_placements)
             << ')';
}

}  // namespace coshard
