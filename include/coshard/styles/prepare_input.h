#pragma once
// PrepareModuleInput: annotates and redistributes a module's inputs. Shards no parameters. A value.
#include <coshard/styles/layouts.h>
#include <coshard/styles/style.h>

#pragma GCC visibility push(default)
namespace coshard {

// An input whose layout is nullopt is left alone; a nullopt among the desired layouts only
// annotates. Redistributes of all inputs are issued before the first is awaited.
struct PrepareModuleInput {
  Placements input_layouts = {};  // of plain inputs; one per positional input
  Placements desired_input_layouts = {};
  KeywordPlacements input_kwarg_layouts = {};
  KeywordPlacements desired_input_kwarg_layouts = {};
  bool use_local_output = false;  // the module gets local tensors
  // Placements of the gradients of the plain inputs, and of the local tensors that the module gets;
  // by position and by keyword. nullopt, or not given: the tensor's own.
  Placements local_input_grad_placements = {};
  Placements local_output_grad_placements = {};
  KeywordPlacements local_input_kwarg_grad_placements = {};
  KeywordPlacements local_output_kwarg_grad_placements = {};

  // Error{BadInput}: one list of a pair without the other, or of another length, or with other
  // names; gradient placements for inputs without a layout.
  void apply(Module& module, const DeviceMesh& mesh, const ParallelizeOptions& options) const;

  void check() const;
};
std::ostream& operator<<(std::ostream& out, const PrepareModuleInput& style);

}  // namespace coshard
#pragma GCC visibility pop
