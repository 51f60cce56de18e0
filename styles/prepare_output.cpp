#include <coshard/styles/prepare_output.h>

#include "styles/prepare.h"

namespace coshard {
namespace {

void prepare_outputs(const PrepareModuleOutput& style, const DeviceMesh& mesh, Module& module,
                     Outputs& outputs) {
  CS_REQUIRE(outputs.size() == style.output_layouts.size(), "PrepareModuleOutput: '", module.path(),
             "' returned ", outputs.size(), " outputs, but output_layouts ", style.output_layouts,
             " has ", style.output_layouts.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!style.output_layouts[i]) continue;
    DTensor y = as_distributed(module, outputs[i], mesh, *style.output_layouts[i],
                               nth_gradient(style.local_input_grad_placements, i));
    if (style.desired_output_layouts[i])
      y = bring_to(y, *style.desired_output_layouts[i], style.reduce_dtype);
    outputs[i] = style.use_local_output
                     ? as_local(y, nth_gradient(style.local_output_grad_placements, i))
                     : y;
  }
}

}  // namespace

void PrepareModuleOutput::check() const {
  CS_REQUIRE(output_layouts.given() && desired_output_layouts.given() &&
                 output_layouts.size() == desired_output_layouts.size(),
             "PrepareModuleOutput: output_layouts ", output_layouts, " and desired_output_layouts ",
             desired_output_layouts, " must have the same length");
  for (const Placements& gradients : {local_input_grad_placements, local_output_grad_placements})
    CS_REQUIRE(!gradients.given() || gradients.size() == output_layouts.size(),
               "PrepareModuleOutput: gradient placements ", gradients,
               " do not match output_layouts ", output_layouts);
}

void PrepareModuleOutput::apply(Module& module, const DeviceMesh& mesh,
                                const ParallelizeOptions&) const {
  require_one_dimension(mesh, "PrepareModuleOutput");
  check();
  module.claim("prepared for its outputs");
  module.add_post_hook([style = *this, mesh](Module& self, Outputs& outputs) {
    prepare_outputs(style, mesh, self, outputs);
  });
}

std::ostream& operator<<(std::ostream& out, const PrepareModuleOutput& style) {
  return out << "PrepareModuleOutput(output_layouts=" << style.output_layouts
             << ", desired_output_layouts=" << style.desired_output_layouts
             << ", use_local_output=" << (style.use_local_output ? "true" : "false")
             << list_text("local_input_grad_placements", style.local_input_grad_placements)
             << list_text("local_output_grad_placements", style.local_output_grad_placements)
             << given_text("reduce_dtype", style.reduce_dtype) << ')';
}

}  // namespace coshard
