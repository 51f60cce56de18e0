#pragma once
// PrepareModuleOutput: annotates and redistributes what a module gives. Cuts no parameter. A value.
#include <coshard/styles/layouts.h>
#include <coshard/styles/style.h>

namespace coshard {

// An output whose layout is nullopt is left alone; a DTensor is judged by its own layout.
struct PrepareModuleOutput {
  Placements output_layouts = {};  // of plain outputs; as many as outputs
  Placements desired_output_layouts = {};
  bool use_local_output = true;
  // How gradients lie over the ranks: of the plain tensors that the module gives, and of the local
  // ones that come out. nullopt, or not given: as the tensors.
  Placements local_input_grad_placements = {};
  Placements local_output_grad_placements = {};
  // Partial outputs are cast to it before they are reduced, and stay so. Later HyperParallel.
  std::optional<DType> reduce_dtype = std::nullopt;

  // Error{BadInput}: one list without the other, or of another length.
  void apply(Module& module, const DeviceMesh& mesh, const ParallelizeOptions& options) const;
  friend std::ostream& operator<<(std::ostream& out, const PrepareModuleOutput& style);

  void check() const;
};

}  // namespace coshard
