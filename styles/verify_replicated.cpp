#include <coshard/styles/verify_replicated.h>

#include <algorithm>

#include <coshard/dtensor/distribute/distribute.h>
#include "dtensor/distribute/replicas.h"
#include "dtensor/tape/marks.h"

namespace coshard {
namespace {

// A plain parameter, read as Replicate on a mesh, but for the dimensions along which each rank has
// its own; there as terms, which are not compared.
DTensor on_mesh(const Tensor& x, const DeviceMesh& mesh) {
  Layout layout = whole_on(mesh);
  for (int m = 0; m < mesh.ndim(); ++m)
    if ((all_own_along(x) & mark_of(mesh, m)) != 0) layout[m] = Partial();
  return x.detach().with_spec(make_spec(mesh, layout, x.shape()));
}

}  // namespace

Task<void> verify_replicated(Module& module, CallSite site) {
  std::vector<NamedTensor> tensors;
  std::vector<DeviceMesh> meshes;  // of the DTensors
  for (const NamedParameter& p : module.named_parameters())
    if (p.slot->is_distributed() && p.slot->mesh().contains_this_rank() &&
        std::ranges::find(meshes, p.slot->mesh()) == meshes.end())
      meshes.push_back(p.slot->mesh());
  for (const NamedParameter& p : module.named_parameters()) {
    for (const DeviceMesh& mesh : meshes)
      if (!p.slot->is_distributed())
        tensors.push_back({p.name, on_mesh(*p.slot, mesh),
                           "load or seed it alike on all ranks, or say varies(parameter, mesh, "
                           "dim) if each rank trains its own"});
    tensors.push_back({p.name, *p.slot});
    if (const Tensor gradient = p.slot->grad(); gradient.defined())
      tensors.push_back({"the gradient of " + p.name, gradient});
  }
  return verify_replicas(std::move(tensors), site);
}

}  // namespace coshard
