#pragma once
// PrepareModuleOutput: annotates and redistributes a module's outputs. Shards no parameters. A
// value.
#include <coshard/styles/layouts.h>
#include <coshard/styles/style.h>

#pragma GCC visibility push(default)
namespace coshard {

// An output whose layout is nullopt is left alone; a DTensor's own layout takes precedence.
struct PrepareModuleOutput {
  Placements output_layouts = {};  // of plain outputs; one per output
  Placements desired_output_layouts = {};
  bool use_local_output = true;
  // Placements of the gradients of the module's plain outputs, and of the local tensors that are
  // returned. nullopt, or not given: the tensor's own.
  Placements local_input_grad_placements = {};
  Placements local_output_grad_placements = {};
  // Partial outputs are cast to this dtype before the reduction, and keep it. As in later
  // HyperParallel.
  std::optional<DType> reduce_dtype = std::nullopt;

  // Error{BadInput}: one list without the other, or of another length.
  void apply(Module& module, const DeviceMesh& mesh, const ParallelizeOptions& options) const;

  void check() const;
};
std::ostream& operator<<(std::ostream& out, const PrepareModuleOutput& style);

}  // namespace coshard
#pragma GCC visibility pop
