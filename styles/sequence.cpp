#include "styles/sequence.h"

#include "styles/prepare.h"

namespace coshard {

void SequenceParallel::apply(Module& module, const DeviceMesh& mesh,
                             const ParallelizeOptions&) const {
  require_one_dimension(mesh, "SequenceParallel");
  Ties ties(module);
  for (const NamedParameter& p : module.named_parameters()) replicate_parameter(*p.slot, mesh);
  ties.restore();
  module.add_pre_hook([style = *this, mesh](Module& self, Inputs& inputs) {
    Tensor& x = only_input(self, inputs, "SequenceParallel");
    const Placement cut = Shard(style.sequence_dim);
    x = bring_to(as_distributed(self, x, mesh, cut), cut);
  });
  if (!use_local_output) return;
  module.add_post_hook([](Module& self, Outputs& outputs) {
    Tensor& y = only_output(self, outputs, "SequenceParallel");
    y = to_local(y);
  });
}

std::ostream& operator<<(std::ostream& out, const SequenceParallel& style) {
  return out << "SequenceParallel(sequence_dim=" << style.sequence_dim
             << ", use_local_output=" << std::boolalpha << style.use_local_output << ')';
}

}  // namespace coshard
