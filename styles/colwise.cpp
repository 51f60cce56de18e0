#include <coshard/styles/colwise.h>

#include <coshard/styles/no_parallel.h>
#include "styles/prepare.h"

namespace coshard {
void ColwiseParallel::apply(Module& module, const DeviceMesh& mesh,
                            const ParallelizeOptions& options) const {
  require_one_dimension(mesh, "ColwiseParallel");
  const bool local = use_local_output && output_layouts.is_sharded();
  const auto wanted = module.shard_axes(ShardBy::Columns);
  if (wanted && local && every_rank_has_all(*wanted, module, mesh)) {
    const NoParallel whole{.input_layout = input_layouts,
                           .use_local_output = true,
                           .local_input_grad_placements = local_input_grad_placements,
                           .local_output_grad_placements = Partial()};
    return whole.apply(module, mesh, options);
  }
  module.claim("parallelized");
  const ShardAxes axes =
      shard_parameters(module, mesh, ShardBy::Columns, local, "ColwiseParallel", options);
  module.set_overlapping({overlap.value_or(options.overlap)});
  module.add_pre_hook([style = *this, mesh, axes](Module& self, Inputs& inputs) {
    Tensor& x = only_input(self, inputs, "ColwiseParallel");
    x = bring_to(as_distributed(self, x, mesh, style.input_layouts,
                                style.local_input_grad_placements, axes.width),
                 axes.input, std::nullopt, &self);
  });
  module.add_post_hook([style = *this, axes](Module& self, Outputs& outputs) {
    Tensor& y = only_output(self, outputs, "ColwiseParallel");
    y = bring_to(y, in_units(style.output_layouts, y, axes.groups.size));
    if (style.use_local_output) y = as_local(y, style.local_output_grad_placements);
  });
}

std::ostream& operator<<(std::ostream& out, const ColwiseParallel& style) {
  return out << "ColwiseParallel(input_layouts=" << style.input_layouts
             << ", output_layouts=" << style.output_layouts
             << ", use_local_output=" << (style.use_local_output ? "true" : "false")
             << given_text("local_input_grad_placements", style.local_input_grad_placements)
             << given_text("local_output_grad_placements", style.local_output_grad_placements)
             << given_text("overlap", style.overlap) << ')';
}

}  // namespace coshard
