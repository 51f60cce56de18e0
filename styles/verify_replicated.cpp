#include <coshard/styles/verify_replicated.h>

#include "dtensor/replicas.h"

namespace coshard {

Task<void> verify_replicated(Module& module, CallSite site) {
  std::vector<NamedTensor> tensors;
  for (const NamedParameter& p : module.named_parameters()) {
    tensors.push_back({p.name, *p.slot});
    if (const Tensor gradient = p.slot->grad(); gradient.defined())
      tensors.push_back({"the gradient of " + p.name, gradient});
  }
  return verify_replicas(std::move(tensors), site);
}

}  // namespace coshard
