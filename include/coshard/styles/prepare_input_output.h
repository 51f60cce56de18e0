#pragma once
// PrepareModuleInputOutput: PrepareModuleInput and PrepareModuleOutput on one module. A value.
#include <coshard/styles/prepare_input.h>
#include <coshard/styles/prepare_output.h>

namespace coshard {

struct PrepareModuleInputOutput {
  Placements input_layouts = {};
  Placements desired_input_layouts = {};
  KeywordPlacements input_kwarg_layouts = {};
  KeywordPlacements desired_input_kwarg_layouts = {};
  bool use_local_input = false;
  // Gradients of plain inputs, and of the local ones that the module gets.
  Placements local_input_grad_placements = {};
  Placements module_input_grad_placements = {};
  Placements output_layouts = {};
  Placements desired_output_layouts = {};
  bool use_local_output = true;
  // Gradients of plain outputs of the module, and of the local ones that come out.
  Placements module_output_grad_placements = {};
  Placements local_output_grad_placements = {};
  std::optional<DType> reduce_dtype = std::nullopt;  // of outputs

  void apply(Module& module, const DeviceMesh& mesh, const ParallelizeOptions& options) const;
  friend std::ostream& operator<<(std::ostream& out, const PrepareModuleInputOutput& style);

  PrepareModuleInput input() const;
  PrepareModuleOutput output() const;
};

}  // namespace coshard
