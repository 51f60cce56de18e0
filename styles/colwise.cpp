#include <coshard/styles/colwise.h>

#include "styles/prepare.h"

namespace coshard {
namespace {

// Local shards of an output must hold whole groups of columns, such as heads.
void require_whole_groups(Module& module, const DeviceMesh& mesh, const ShardAxes& axes) {
  if (axes.group == 1 || axes.parameters.empty()) return;
  const Tensor& weight = module.parameter(axes.parameters.front().parameter);
  const std::int64_t columns = weight.size(axes.parameters.front().placement.dim);
  if (chunk_of(columns, mesh.size(), 0).size % axes.group == 0) return;
  fail(ErrorKind::BadInput,
       str_cat("ColwiseParallel: '", module.path(), "' has ", columns / axes.group, " heads of ",
               axes.group, " columns, which ", mesh,
               " would cut apart in local outputs; give q, k and v the style "
               "ColwiseParallel{.use_local_output = false}, and their norms, if they have some, "
               "SequenceParallel{.sequence_dim = 2, .use_local_output = false}"));
}

}  // namespace

void ColwiseParallel::apply(Module& module, const DeviceMesh& mesh,
                            const ParallelizeOptions& options) const {
  require_one_dimension(mesh, "ColwiseParallel");
  module.claim("parallelized");
  if (const auto axes = module.shard_axes(ShardBy::Columns); axes && use_local_output)
    require_whole_groups(module, mesh, *axes);
  const ShardAxes axes =
      shard_parameters(module, mesh, ShardBy::Columns, "ColwiseParallel", options);
  module.set_overlapping({overlap.value_or(options.overlap)});
  module.add_pre_hook([style = *this, mesh, axes](Module& self, Inputs& inputs) {
    Tensor& x = only_input(self, inputs, "ColwiseParallel");
    x = bring_to(as_distributed(self, x, mesh, style.input_layouts,
                                style.local_input_grad_placements, axes.width),
                 axes.input);
  });
  module.add_post_hook([style = *this](Module& self, Outputs& outputs) {
    Tensor& y = only_output(self, outputs, "ColwiseParallel");
    y = bring_to(y, style.output_layouts);
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
