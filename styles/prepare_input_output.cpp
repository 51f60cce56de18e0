#include <coshard/styles/prepare_input_output.h>

namespace coshard {

PrepareModuleInput PrepareModuleInputOutput::input() const {
  return {.input_layouts = input_layouts,
          .desired_input_layouts = desired_input_layouts,
          .input_kwarg_layouts = input_kwarg_layouts,
          .desired_input_kwarg_layouts = desired_input_kwarg_layouts,
          .use_local_output = use_local_input,
          .local_input_grad_placements = local_input_grad_placements,
          .local_output_grad_placements = module_input_grad_placements};
}

PrepareModuleOutput PrepareModuleInputOutput::output() const {
  return {.output_layouts = output_layouts,
          .desired_output_layouts = desired_output_layouts,
          .use_local_output = use_local_output,
          .local_input_grad_placements = module_output_grad_placements,
          .local_output_grad_placements = local_output_grad_placements,
          .reduce_dtype = reduce_dtype};
}

void PrepareModuleInputOutput::apply(Module& module, const DeviceMesh& mesh,
                                     const ParallelizeOptions& options) const {
  output().check();
  input().apply(module, mesh, options);
  output().apply(module, mesh, options);
}

std::ostream& operator<<(std::ostream& out, const PrepareModuleInputOutput& style) {
  return out << "PrepareModuleInputOutput(" << style.input() << ", " << style.output() << ')';
}

}  // namespace coshard
