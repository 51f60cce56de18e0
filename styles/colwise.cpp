#include <coshard/styles/colwise.h>

#include <coshard/styles/nn/embedding.h>
#include <coshard/styles/nn/linear.h>
#include "styles/prepare.h"

namespace coshard {

void ColwiseParallel::apply(Module& module, const DeviceMesh& mesh,
                            const ParallelizeOptions& options) const {
  require_one_dimension(mesh, "ColwiseParallel");
  std::optional<std::int64_t> width;
  module.claim("parallelized");
  if (auto* linear = dynamic_cast<nn::Linear*>(&module)) {
    width = linear->in_features;
    cut_parameter(linear->weight, mesh, Shard(0), options);
    cut_parameter(linear->bias, mesh, Shard(0), options);
  } else if (auto* embedding = dynamic_cast<nn::Embedding*>(&module)) {
    cut_parameter(embedding->weight, mesh, Shard(1), options);
  } else {
    fail(ErrorKind::BadInput,
         cat("ColwiseParallel: '", module.path(), "' is a ", module.type_name(),
             "; only Linear and Embedding can be cut by columns"));
  }
  module.add_pre_hook([style = *this, mesh, width](Module& self, Inputs& inputs) {
    Tensor& x = only_input(self, inputs, "ColwiseParallel");
    x = bring_to(as_distributed(self, x, mesh, style.input_layouts,
                                style.local_input_grad_placements, width),
                 Replicate());
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
             << ", use_local_output=" << std::boolalpha << style.use_local_output
             << given_text("local_input_grad_placements", style.local_input_grad_placements)
             << given_text("local_output_grad_placements", style.local_output_grad_placements)
             << ')';
}

}  // namespace coshard
