#include <coshard/styles/distribute_module.h>

#include <coshard/dtensor/tape/tape.h>
#include "runtime/coro/user_call.h"
#include "styles/module_change.h"
#include "styles/prepare.h"

namespace coshard {
namespace {

void distribute_parameters(Module& module, const DeviceMesh& mesh, const PartitionFn& partition_fn,
                           const ParallelizeOptions& options) {
  for (const NamedParameter& p : module.named_parameters())
    if (const auto& meta = p.slot->grad_meta(); meta && meta->owner != nullptr)
      fail(ErrorKind::BadInput,
           str_cat("distribute_module: parameter '", p.name, "' is ", *p.slot, ", a shard of ",
                   meta->owner->name, "; call distribute_module first, then ", meta->owner->name));
  Ties ties(module);
  for (const auto& [path, below] : module.named_modules()) {
    if (!partition_fn) break;
    partition_fn(path, *below, mesh);
    ties.restore();
  }
  const Layout replicas = Layout::filled(mesh.ndim(), Replicate());
  for (const NamedParameter& p : module.named_parameters()) {
    if (p.slot->is_distributed()) continue;
    const bool requires_grad = p.slot->requires_grad();
    *p.slot = distribute_tensor(p.slot->detach(), mesh, replicas, options.src_data_rank);
    p.slot->set_requires_grad(requires_grad);
  }
  ties.restore();
}

}  // namespace

void distribute_module(Module& module, const DeviceMesh& mesh, const PartitionFn& partition_fn,
                       const InputFn& input_fn, const OutputFn& output_fn,
                       const ParallelizeOptions& options, CallSite site) {
  const UserCall user(site);
  CS_REQUIRE(mesh.defined(), "distribute_module: the mesh is undefined");
  ModuleChange change(module);
  try {
    module.claim("parallelized");
    distribute_parameters(module, mesh, partition_fn, options);
    change.require_same_shapes("distribute_module: partition_fn");
    change.require_ties_kept("distribute_module");
  } catch (...) {
    change.undo();
    throw;
  }
  change.keep("distribute_module");
  if (input_fn)
    module.add_pre_hook([=](Module& self, Inputs& inputs) { input_fn(self, inputs, mesh); });
  if (output_fn)
    module.add_post_hook([=](Module& self, Outputs& outputs) { output_fn(self, outputs, mesh); });
}

}  // namespace coshard
