#include "styles/prepare.h"

#include <map>
#include <typeindex>
#include <utility>

#include <coshard/dtensor/distribute/replica_guard.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include "dtensor/capture/step_graph.h"
#include "dtensor/distribute/replicas.h"
#include "dtensor/ops/run_check.h"
#include "dtensor/tape/marks.h"
#include "dtensor/tensor/local.h"
#include "runtime/interned_text.h"
#include "styles/module_state.h"

namespace coshard {
namespace {

// The ranks compare a plain tensor that they must have read alike, such as a batch: in the first
// two forwards of training, and under a ReplicaGuard.
void compare_values(Module& module, const Tensor& x, const DeviceMesh& mesh) {
  if (x.requires_grad() || x.in_flight() || mesh.size() == 1 || !mesh.contains_this_rank()) return;
  const bool is_new = module.training() && grad_enabled() && module.forwards() <= 2;
  if ((!is_new && !ReplicaGuard::is_active()) || StepGraph::recording() != nullptr) return;
  ReplicaHashes hashes;
  hashes.names.push_back(
      str_cat("forward ", module.forwards(), " of ", module.path(), x.dtype(), x.shape()));
  hashes.hashes.push_back(0);
  hashes.gradients.push_back(bits_hash(x));
  hashes.about.push_back(str_cat(
      module.type_name(), " '", module.path(), "' read ", x,
      " as Replicate, with other values on "
      "each of them (a batch, or what is drawn or dropped by rank): ranks of one slice must read "
      "the same, those along another dimension of the mesh may not"));
  hashes.of.push_back(&module);
  mesh.communicator(0).compare_with_next(hashes);
}

// Made once for a module: every forward needs it.
std::string_view how_guessed(Module& module) {
  using Key = std::pair<const std::string*, std::type_index>;
  thread_local std::map<Key, std::string_view> known;
  std::string_view& how = known[Key(&module.path(), typeid(module))];  // a path lasts
  if (how.empty())
    how = interned(str_cat("ran ", module.type_name(), " '", module.path(),
                           "' on local shards, which must be even (where they are not, give the "
                           "layer before it use_local_output = false) and imply size"));
  return how;
}

}  // namespace

DTensor as_distributed(Module& module, const Tensor& x, const DeviceMesh& mesh, Placement placement,
                       const GradPlacement& grad, std::optional<std::int64_t> whole) {
  CS_REQUIRE(x.defined(), module.type_name(), ": expected a tensor for layout ", placement,
             ", got none");
  if (x.is_distributed()) return x;
  const Layout layout = normalize(Layout(placement), x.shape(), "input_layouts");
  require_alike(x, mesh, layout,
                [&] { return str_cat(module.type_name(), " '", module.path(), "'"); });
  if (layout[0].is_replicate()) compare_values(module, x, mesh);
  FromLocalOptions options;
  if (whole && layout[0].is_sharded(x.ndim() - 1)) {
    Shape shape = x.shape();
    shape.back() = *whole;
    options.shape = shape;
  }
  if (grad) options.grad_placements = Layout(*grad);
  const bool guessed = !options.shape && layout[0].is_sharded() && mesh.contains_this_rank();
  if (guessed) options.shape = even_shape(x.shape(), mesh.shape(), layout);
  const DTensor y = from_local(x, mesh, layout, options);
  if (guessed) note_sizes(y, how_guessed(module));
  return y;
}

Tensor as_local(const Tensor& x, const GradPlacement& grad) {
  if (!x.is_distributed()) return x;
  return grad ? to_local(x, Layout(*grad)) : to_local(x);
}

DTensor bring_to(const DTensor& x, Placement wanted, std::optional<DType> reduce_dtype,
                 const Module* reader) {
  CS_REQUIRE(x.mesh().ndim() == 1, "a style needs a tensor on a mesh of one dimension, got ", x,
             "; over several dimensions, cut the module by distribute_module instead");
  const Layout target = normalize(Layout(wanted), x.shape(), "redistribute");
  if (x.layout() == target) return x;
  RedistributeOptions options;
  if (x.layout()[0].is_partial()) options.forward_dtype = reduce_dtype;
  const bool reads = reader != nullptr && !(reader->state() && reader->state()->casts(x));
  if (reads && target[0].is_replicate() && !x.mesh().world().communicator()->gathers_by_shards())
    options.by_shards = multiplies_sooner(x, target, reader->input_products());
  const Redistribution issued = redistribute(x, target, options);
  return issued.tensor();
}

Tensor& only_input(Module& module, Inputs& inputs, std::string_view style) {
  CS_REQUIRE(!inputs.args.empty() && inputs.args.front().defined(), style, ": ", module.type_name(),
             " '", module.path(),
             "' was called without a tensor by position; PrepareModuleInput takes those by name "
             "(input_kwarg_layouts)");
  return inputs.args.front();
}

Tensor& only_output(Module& module, Outputs& outputs, std::string_view style) {
  CS_REQUIRE(outputs.size() == 1 && outputs.front().defined(), style, ": ", module.type_name(),
             " '", module.path(), "' returned ", outputs.size(),
             " outputs, not one tensor; PrepareModuleOutput takes several, and the style fits the "
             "module within that makes one");
  return outputs.front();
}

void shard_parameter(Module& module, const std::string& name, const DeviceMesh& mesh,
                     Placement placement, const ParallelizeOptions& options) {
  Tensor& slot = module.parameter(name);
  if (slot.is_distributed()) {
    const LeafOwner* owner = slot.grad_meta() ? slot.grad_meta()->owner : nullptr;
    CS_REQUIRE(slot.mesh() == mesh, "parallelize_module: parameter '", module.path(),
               module.path().empty() ? "" : ".", name, "' is ", slot, ", not on ", mesh,
               owner != nullptr ? str_cat("; call parallelize_module first, then ", owner->name)
                                : "; apply one plan over one mesh to it");
    return;
  }
  const bool requires_grad = slot.requires_grad();
  DTensor cut = issue_distribution(slot.detach(), mesh, Layout(placement), options.src_data_rank);
  cut.set_requires_grad(requires_grad);
  slot = std::move(cut);
}

namespace {

// Of each of the chunks in which the first parameter is cut.
std::int64_t features_of(const ShardAxes& axes, Module& module) {
  const auto& [parameter, cut] = axes.parameters.front();
  return module.parameter(parameter).size(cut.dim) / cut.split;
}

// 1: shards that torch.chunk makes hold whole groups, or there are none.
std::int64_t unit_of_groups(const ShardAxes& axes, Module& module, const DeviceMesh& mesh) {
  const auto [group, part] = axes.groups;
  if (axes.parameters.empty() || group == 1) return 1;
  const std::int64_t features = features_of(axes, module);
  const std::int64_t unit = part == 0 || features / group >= mesh.size() ? group : part;
  return chunk_of(features, mesh.size(), 0).size % unit == 0 ? 1 : unit;
}

}  // namespace

bool every_rank_has_all(const ShardAxes& axes, Module& module, const DeviceMesh& mesh) {
  return axes.groups.part == 0 && !axes.parameters.empty() &&
         features_of(axes, module) / axes.groups.size < mesh.size();
}

Placement in_units(Placement placement, const Tensor& x, std::int64_t unit) {
  const bool last = placement.dim == -1 || placement.dim == x.ndim() - 1;
  if (unit == 1 || !placement.is_sharded() || !last) return placement;
  return StridedShard(placement.dim, placement.split, unit);
}

ShardAxes shard_parameters(Module& module, const DeviceMesh& mesh, ShardBy way, bool local,
                           std::string_view style, const ParallelizeOptions& options) {
  std::optional<ShardAxes> axes = module.shard_axes(way);
  CS_REQUIRE(axes, style, ": '", module.path(), "' is a ", module.type_name(),
             ", which cannot be sharded ", way == ShardBy::Columns ? "column-wise" : "row-wise",
             "; Linear and Embedding can be, and modules that override shard_axes; use "
             "SequenceParallel for norms and dropout, NoParallel for what stays whole");
  const std::int64_t unit = local ? unit_of_groups(*axes, module, mesh) : 1;
  axes->groups = {unit, unit};
  for (auto& [parameter, placement] : axes->parameters) {
    if (unit != 1 && placement.is_sharded())
      placement = StridedShard(placement.dim, placement.split, unit);
    shard_parameter(module, parameter, mesh, placement, options);
  }
  return *std::move(axes);
}

void replicate_parameter(Tensor& slot, const DeviceMesh& mesh) {
  if (!slot.defined() || slot.is_distributed()) return;
  const bool requires_grad = slot.requires_grad();
  DTensor replica = from_local(slot.detach(), mesh, Layout(Replicate()));
  replica.set_requires_grad(requires_grad);
  slot = std::move(replica);
}

Ties::Ties(Module& root) {
  std::map<const void*, Group> by_tensor;
  for (const NamedParameter& p : root.named_slots()) {
    Group& group = by_tensor[p.slot->id()];
    group.before = *p.slot;
    group.slots.push_back(p.slot);
  }
  for (auto& [id, group] : by_tensor)
    if (group.slots.size() > 1) groups_.push_back(std::move(group));
}

void Ties::restore() {
  for (Group& group : groups_) {
    for (Tensor* slot : group.slots) {
      if (slot->id() == group.before.id()) continue;
      group.before = *slot;
      break;
    }
    for (Tensor* slot : group.slots) *slot = group.before;
  }
}

void require_one_dimension(const DeviceMesh& mesh, std::string_view what) {
  CS_REQUIRE(mesh.defined(), what, ": the mesh is undefined");
  CS_REQUIRE(mesh.ndim() == 1, what, ": the mesh ", mesh, " has ", mesh.ndim(),
             " dimensions; a style needs exactly 1");
}

}  // namespace coshard
