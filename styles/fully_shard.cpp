#include <coshard/styles/fully_shard.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/deferred_init.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include "dtensor/distribute/replicas.h"
#include "dtensor/ops/recipe.h"
#include "dtensor/tape/marks.h"
#include "dtensor/tensor/local.h"
#include "runtime/coro/user_call.h"
#include "styles/module_change.h"
#include "styles/shard_cut.h"
#include "styles/shard_group.h"

namespace coshard {
namespace {

std::string name_of(Module& module, const std::string& path) {
  return str_cat(module.type_name(), " '", path, "'");
}

// The groups below `module` that exist already.
std::vector<std::shared_ptr<ShardGroup>> groups_within(Module& module) {
  const std::vector<NamedModule> parts = module.named_modules();
  std::vector<std::shared_ptr<ShardGroup>> groups;
  for (const NamedModule& part : parts) {
    const std::shared_ptr<ShardGroup> group = shard_group_of(*part.module);
    if (!group) continue;
    const auto holds = [&](const NamedModule& m) { return m.module == &group->module(); };
    const bool is_within = std::ranges::any_of(parts, holds) && &group->module() != &module;
    CS_REQUIRE(is_within, "fully_shard: ", name_of(*part.module, part.module->path()),
               " was sharded before, ",
               &group->module() == part.module
                   ? std::string("by a call of its own")
                   : str_cat("as a part of ", group->module().type_name()),
               "; shard inner modules first, each once");
    if (std::ranges::find(groups, group) == groups.end()) groups.push_back(group);
  }
  return groups;
}

void require_shardable(const NamedParameter& p, const Tensor* first) {
  const Tensor& x = *p.slot;
  require_not_computed("fully_shard", p.name, x);
  CS_REQUIRE(
      !x.grad_meta() || !x.grad_meta()->producer, "fully_shard: parameter '", p.name, "' (", x,
      ") is tied to one that was sharded before, in a module of its own; shard a module that "
      "holds both instead");
  CS_REQUIRE(!x.grad_meta() || x.grad_meta()->collector.expired(), "fully_shard: parameter '",
             p.name, "' (", x, ") is one whose gradients a DataParallel sums; use one of the two");
  CS_REQUIRE(x.ndim() > 0, "fully_shard: parameter '", p.name, "' (", x,
             ") has no dimension to cut; give it the shape [1], which broadcasts alike");
  CS_REQUIRE(is_floating(x.dtype()), "fully_shard: parameter '", p.name, "' (", x,
             ") is none of f32, f64, bf16 and f16");
  CS_REQUIRE(first == nullptr || first->dtype() == x.dtype(), "fully_shard: parameter '", p.name,
             "' is ", x, ", but others of its group are ",
             first == nullptr ? x.dtype() : first->dtype(),
             "; a group travels in one collective, so shard them as modules of their own");
}

// The parameters that are in no group within; tied slots are one parameter.
std::vector<ShardedParameter> parameters_left(
    Module& module, const std::vector<std::shared_ptr<ShardGroup>>& within,
    const std::vector<Tensor>& ignored) {
  std::unordered_set<Tensor*> taken;
  for (const auto& group : within)
    for (const ShardedParameter& p : group->parameters())
      for (Tensor* slot : p.slots) taken.insert(slot);
  std::vector<ShardedParameter> left;
  for (const NamedParameter& p : module.named_slots()) {
    if (!taken.insert(p.slot).second) continue;
    const auto is_this = [&](const Tensor& each) { return each.id() == p.slot->id(); };
    if (std::ranges::any_of(ignored, is_this)) continue;
    const auto tied = std::ranges::find_if(left, [&](const ShardedParameter& known) {
      return known.slots.front()->id() == p.slot->id();
    });
    if (tied != left.end()) {
      tied->slots.push_back(p.slot);
      continue;
    }
    require_shardable(p, left.empty() ? nullptr : left.front().slots.front());
    ShardedParameter& added = left.emplace_back();
    added.name = p.name;
    added.slots = {p.slot};
    added.shape = p.slot->local_shape();
    added.spec = p.slot->spec();
  }
  return left;
}

// What this rank keeps of x, in memory of its own.
Tensor cut_from(const Tensor& x, int dim, const Ranges& kept) {
  Shape shape = x.local_shape();
  shape[static_cast<std::size_t>(dim)] = count_of(kept);
  const Tensor local = x.raw_local(), mine = Tensor::empty(x.device(), shape, x.dtype());
  for (std::int64_t at = 0; const Range& range : kept) {
    const std::int64_t end = at + range.end - range.begin;
    copy_into(slice(mine, dim, at, end), slice(local, dim, range.begin, range.end));
    at = end;
  }
  return mine;
}

void cut(std::vector<ShardedParameter>& parameters, const DeviceMesh& mesh,
         const FullyShardOptions& options) {
  const NoGradGuard no_grad;
  for (ShardedParameter& p : parameters) {
    const Tensor& x = *p.slots.front();
    ShardCut how = shard_cut(
        p.name, x, mesh,
        options.shard_placement_fn ? options.shard_placement_fn(x) : std::optional<Placement>());
    p.dim = how.dim;
    p.kept = std::move(how.kept);
    const auto rank = static_cast<std::size_t>(mesh.local_rank(mesh.ndim() - 1));
    const bool deferred = is_deferred(x);
    if (mesh.size() > 1 && !deferred) p.hash_when_cut = bits_hash(x);
    const auto own = [dim = p.dim, kept = p.kept[rank]](const Tensor& whole) {
      return cut_from(whole, dim, kept);
    };
    p.shard = deferred ? cut_later(x, how.spec, own) : own(x).with_spec(how.spec);
    p.writes_when_cut = p.shard.storage()->changes();
    p.shard.set_marks(marks_outside(own_along(x), *how.spec));
    p.shard.set_requires_grad(x.requires_grad());
  }
  for (const ShardedParameter& p : parameters)
    for (Tensor* slot : p.slots) *slot = p.shard;
}

}  // namespace

void fully_shard(Module& module, const DeviceMesh& mesh, FullyShardOptions options, CallSite site) {
  const UserCall user(site);
  CS_REQUIRE(mesh.defined(), "fully_shard: the mesh is undefined");
  CS_REQUIRE(mesh.ndim() <= 2, "fully_shard: the mesh ", mesh, " has ", mesh.ndim(),
             " dimensions; pass the one along which parameters are sharded, mesh[\"dp\"], or two: "
             "the first holds replicas of the shards");
  CS_REQUIRE(mesh.contains_this_rank(), "fully_shard: rank ", mesh.world().rank(),
             " is not in the mesh ", mesh);
  CS_REQUIRE(options.reduce == Reduce::Sum || options.reduce == Reduce::Avg,
             "fully_shard: reduce must be Sum or Avg, got ", to_string(options.reduce));
  require_floating(options.mp_policy);
  const auto within = groups_within(module);
  std::vector<ShardedParameter> parameters =
      parameters_left(module, within, options.ignored_params);
  if (options.src_data_rank) {
    std::vector<Tensor> whole;
    for (const ShardedParameter& p : parameters) whole.push_back(*p.slots.front());
    int source = *options.src_data_rank;
    if (mesh.ndim() == 2) {
      take_replicas_of(source / mesh.size(1), whole, mesh, 0, "fully_shard");
      source %= mesh.size(1);
    }
    take_replicas_of(source, whole, mesh, mesh.ndim() - 1, "fully_shard");
  }
  ModuleChange change(module);
  try {
    cut(parameters, mesh, options);
    change.require_same_shapes("fully_shard");
    change.require_ties_kept("fully_shard");
  } catch (...) {
    change.undo();
    throw;
  }
  change.keep("fully_shard");
  options.ignored_params.clear();
  const auto group = std::make_shared<ShardGroup>(module, std::move(parameters), mesh, options);
  group->adopt_parameters();
  for (const NamedModule& part : module.named_modules())
    if (!part.module->state()) part.module->set_state(group);
  auto schedule = std::make_shared<ShardSchedule>();
  for (const auto& inner : within) {
    schedule->add(inner);
    inner->set_schedule(schedule);
  }
  schedule->add(group);
  group->set_schedule(std::move(schedule));
}

}  // namespace coshard
