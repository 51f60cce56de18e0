#pragma once
// Building blocks of styles: annotating a plain tensor as a DTensor, redistributing it, sharding a
// parameter. For 1-D meshes; redistributes are issued here and awaited by the module. Rank's
// thread.
#include <optional>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/styles/layouts.h>
#include <coshard/styles/style.h>

namespace coshard {

// The placement of a local tensor's gradient; nullopt: the tensor's own, with Partial read as R
// (from_local, to_local).
using GradPlacement = std::optional<Placement>;
inline GradPlacement nth_gradient(const Placements& list, std::size_t i) {
  return list.given() ? list[i] : std::nullopt;
}

// A DTensor as is; a plain tensor as this rank's shard under `placement`. `whole`: the size of the
// last dimension if that is the sharded one; otherwise shards are even. What is Replicate is
// compared (ReplicaGuard). Error{BadInput} names the module: no tensor, or one that is Replicate
// but was computed from shards.
DTensor as_distributed(Module& module, const Tensor& x, const DeviceMesh& mesh, Placement placement,
                       const GradPlacement& grad, std::optional<std::int64_t> whole = std::nullopt);
// The local tensor of a DTensor; a plain tensor as is.
Tensor as_local(const Tensor& x, const GradPlacement& grad);

// Issues the redistribute to `wanted` unless x already has that placement. Shard(-1) is the last
// dimension. reduce_dtype: a Partial is cast to it before the reduction, and the result keeps it.
// `reader`: the module that reads the result as its first input, for the shards of an all_gather.
DTensor bring_to(const DTensor& x, Placement wanted,
                 std::optional<DType> reduce_dtype = std::nullopt, const Module* reader = nullptr);

// For printing: ", reduce_dtype=bf16", or nothing.
template <class T>
std::string given_text(std::string_view name, const std::optional<T>& value) {
  return value ? str_cat(", ", name, '=', *value) : "";
}
template <class List>
std::string list_text(std::string_view name, const List& list) {
  return list.given() ? str_cat(", ", name, '=', list) : "";
}

// The only input, for styles that prepare one. Error{BadInput} if there is none.
Tensor& only_input(Module& module, Inputs& inputs, std::string_view style);
Tensor& only_output(Module& module, Outputs& outputs, std::string_view style);

// Replaces a parameter by a DTensor leaf with the same requires_grad, in flight. Leaves a tensor
// alone that is already distributed: a tied parameter that another style has sharded keeps that
// layout, and operators redistribute it. Error{BadInput}: one on another mesh.
void shard_parameter(Module& module, const std::string& name, const DeviceMesh& mesh,
                     Placement placement, const ParallelizeOptions& options);
// Shards all parameters that `way` covers, `local` features in whole groups; groups.size of the
// result is then the unit of the shards. Error{BadInput}, naming `style`: a module without it.
ShardAxes shard_parameters(Module& module, const DeviceMesh& mesh, ShardBy way, bool local,
                           std::string_view style, const ParallelizeOptions& options);
// Whether there are fewer groups than ranks, and then all ranks have all of them.
bool every_rank_has_all(const ShardAxes& axes, Module& module, const DeviceMesh& mesh);
// A placement of x, in whole units where it shards the last dimension.
Placement in_units(Placement placement, const Tensor& x, std::int64_t unit);
// Takes every rank's own data as a replica; nothing is sent.
void replicate_parameter(Tensor& slot, const DeviceMesh& mesh);

// Keeps tied slots tied: `restore` copies a tensor's replacement in one slot to its others.
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
