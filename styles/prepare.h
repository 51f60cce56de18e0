#pragma once
// What the styles are made of: turning a plain tensor into a DTensor and bringing it to a layout,
// and cutting a parameter. All on one-dimensional meshes; redistributes are issued, not awaited
// (the module does that). Rank's thread.
#include <optional>

#include <coshard/dtensor/distribute.h>
#include <coshard/styles/layouts.h>
#include <coshard/styles/style.h>

namespace coshard {

// How the gradients that the ranks have of a local tensor are to be read, or given; nullopt: as the
// tensor itself, a Partial as R (from_local, to_local).
using GradPlacement = std::optional<Placement>;
inline GradPlacement nth_gradient(const Placements& list, std::size_t i) {
  return list.given() ? list[i] : std::nullopt;
}

// A DTensor as it is; a plain tensor as this rank's part under `placement`. `whole`: the size of
// the last dimension when that is the one that is cut; otherwise parts are even. Error{BadInput}
// names the module.
DTensor as_distributed(const Module& module, const Tensor& x, const DeviceMesh& mesh,
                       Placement placement, const GradPlacement& grad,
                       std::optional<std::int64_t> whole = std::nullopt);
// The local tensor of a DTensor; a plain one as it is.
Tensor as_local(const Tensor& x, const GradPlacement& grad);

// Issues the redistribute to `wanted`, when x lies otherwise. Shard(-1) is the last dimension.
// reduce_dtype: a Partial is cast to it before it is reduced, and the result stays so.
DTensor bring_to(const DTensor& x, Placement wanted,
                 std::optional<DType> reduce_dtype = std::nullopt);

// For printing: ", reduce_dtype=bf16", or nothing.
template <class T>
std::string given_text(std::string_view name, const std::optional<T>& value) {
  return value ? cat(", ", name, '=', *value) : "";
}
template <class List>
std::string list_text(std::string_view name, const List& list) {
  return list.given() ? cat(", ", name, '=', list) : "";
}

// The only input, for styles that prepare one. Error{BadInput} when there is none.
Tensor& only_input(Module& module, Inputs& inputs, std::string_view style);
Tensor& only_output(Module& module, Outputs& outputs, std::string_view style);

// Replaces the tensor in `slot` by a DTensor leaf with the same requires_grad, in flight. An
// undefined one is left alone, and so is one that is distributed already: a tied parameter that
// another style has cut keeps that layout, and operators redistribute it.
void cut_parameter(Tensor& slot, const DeviceMesh& mesh, Placement placement,
                   const ParallelizeOptions& options);
// Every rank's own data, taken for replicas; nothing is sent.
void replicate_parameter(Tensor& slot, const DeviceMesh& mesh);

// One tensor in several slots stays one: `restore` puts what replaced it in one slot into the
// others.
class Ties {
 public:
  explicit Ties(Module& root);
  void restore();

 private:
  struct Group {
    Tensor before;
    std::vector<Tensor*> slots;
  };
  std::vector<Group> groups_;
};

// Error{BadInput} for a mesh that is undefined or has more than one dimension.
void require_one_dimension(const DeviceMesh& mesh, std::string_view what);

}  // namespace coshard
