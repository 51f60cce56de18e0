#pragma once
// PrepareModuleInputOutput: PrepareModuleInput and PrepareModuleOutput on one module. A value.
#include <coshard/styles/prepare_input.h>
#include <coshard/styles/prepare_output.h>

#pragma GCC visibility push(default)
namespace coshard {

struct PrepareModuleInputOutput {
  Placements input_layouts = {};
  Placements desired_input_layouts = {};
  KeywordPlacements input_kwarg_layouts = {};
  KeywordPlacements desired_input_kwarg_layouts = {};
  bool use_local_input = false;
  // Gradients of plain inputs, and of the local tensors that the module gets.
  Placements local_input_grad_placements = {};
  Placements module_input_grad_placements = {};
  Placements output_layouts = {};
  Placements desired_output_layouts = {};
  bool use_local_output = true;
  // Gradients of the module's plain outputs, and of the local tensors that are returned.
  Placements module_output_grad_placements = {};
  Placements local_output_grad_placements = {};
  std::optional<DType> reduce_dtype = std::nullopt;  // of outputs

  void apply(Module& module, const DeviceMesh& mesh, const ParallelizeOptions& options) const;

  PrepareModuleInput input() const;
  PrepareModuleOutput output() const;
};
std::ostream& operator<<(std::ostream& out, const PrepareModuleInputOutput& style);

}  // namespace coshard
#pragma GCC visibility pop
