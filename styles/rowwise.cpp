#include <coshard/styles/rowwise.h>

#include "styles/prepare.h"

namespace coshard {

void RowwiseParallel::apply(Module& module, const DeviceMesh& mesh,
                            const ParallelizeOptions& options) const {
  require_one_dimension(mesh, "RowwiseParallel");
  module.claim("parallelized");
  const ShardAxes axes =
      shard_parameters(module, mesh, ShardBy::Rows, true, "RowwiseParallel", options);
  module.set_overlapping({overlap.value_or(options.overlap),
                          reduce_dtype ? std::nullopt : std::optional(output_layouts)});
  module.add_pre_hook([style = *this, mesh, axes](Module& self, Inputs& inputs) {
    Tensor& x = only_input(self, inputs, "RowwiseParallel");
    const std::int64_t unit = axes.groups.size;
    x = bring_to(as_distributed(self, x, mesh, in_units(style.input_layouts, x, unit),
                                style.local_input_grad_placements, axes.width),
                 in_units(axes.input, x, unit));
  });
  module.add_post_hook([style = *this](Module& self, Outputs& outputs) {
    Tensor& y = only_output(self, outputs, "RowwiseParallel");
    y = bring_to(y, style.output_layouts, style.reduce_dtype);
    if (style.use_local_output) y = as_local(y, style.local_output_grad_placements);
  });
}

std::ostream& operator<<(std::ostream& out, const RowwiseParallel& style) {
  return out << "RowwiseParallel(input_layouts=" << style.input_layouts
             << ", output_layouts=" << style.output_layouts
             << ", use_local_output=" << (style.use_local_output ? "true" : "false")
             << given_text("local_input_grad_placements", style.local_input_grad_placements)
             << given_text("local_output_grad_placements", style.local_output_grad_placements)
             << given_text("reduce_dtype", style.reduce_dtype)
             << given_text("overlap", style.overlap) << ')';
}

}  // namespace coshard
