#include <coshard/styles/no_parallel.h>

#include "styles/prepare.h"

namespace coshard {

void NoParallel::apply(Module& module, const DeviceMesh& mesh,
                       const ParallelizeOptions& options) const {
  require_one_dimension(mesh, "NoParallel");
  module.claim("parallelized");
  Ties ties(module);
  for (const NamedParameter& p : module.named_parameters())
    shard_parameter(module, p.name, mesh, Replicate(), options);
  ties.restore();
  module.add_pre_hook([style = *this, mesh](Module& self, Inputs& inputs) {
    Tensor& x = only_input(self, inputs, "NoParallel");
    x = bring_to(
        as_distributed(self, x, mesh, style.input_layout, style.local_input_grad_placements),
        style.desired_input_layout);
  });
  module.add_post_hook([style = *this, mesh](Module& self, Outputs& outputs) {
    CS_REQUIRE(!outputs.empty(), "NoParallel: '", self.path(), "' returned no output");
    Tensor& y = outputs.front();
    y = bring_to(as_distributed(self, y, mesh, style.output_layout, std::nullopt),
                 style.output_layout);
    if (style.use_local_output) y = as_local(y, style.local_output_grad_placements);
  });
}

std::ostream& operator<<(std::ostream& out, const NoParallel& style) {
  return out << "NoParallel(input_layout=" << style.input_layout
             << ", desired_input_layout=" << style.desired_input_layout
             << ", output_layout=" << style.output_layout
             << ", use_local_output=" << (style.use_local_output ? "true" : "false")
             << given_text("local_input_grad_placements", style.local_input_grad_placements)
             << given_text("local_output_grad_placements", style.local_output_grad_placements)
             << ')';
}

}  // namespace coshard
