#pragma once
// PrepareModuleInput: annotates and redistributes what a module is called with. Cuts no parameter.
// A value.
#include <coshard/styles/layouts.h>
#include <coshard/styles/style.h>

namespace coshard {

// An input whose layout is nullopt is left alone; a nullopt among the desired ones annotates only.
// Redistributes of all inputs are issued before the first is awaited.
struct PrepareModuleInput {
  Placements input_layouts = {};  // of plain inputs; as many as inputs by position
  Placements desired_input_layouts = {};
  KeywordPlacements input_kwarg_layouts = {};
  KeywordPlacements desired_input_kwarg_layouts = {};
  bool use_local_output = false;  // the module gets local tensors
  // How gradients lie over the ranks: of the plain tensors that come, and of the local ones that
  // the module gets; by position and by keyword. nullopt, or not given: as the tensors.
  Placements local_input_grad_placements = {};
  Placements local_output_grad_placements = {};
  KeywordPlacements local_input_kwarg_grad_placements = {};
  KeywordPlacements local_output_kwarg_grad_placements = {};

  // Error{BadInput}: one list of a pair without the other, or of another length, or with other
  // names; gradients for inputs that have no layout.
  void apply(Module& module, const DeviceMesh& mesh, const ParallelizeOptions& options) const;
  friend std::ostream& operator<<(std::ostream& out, const PrepareModuleInput& style);

  void check() const;
};

}  // namespace coshard
