#pragma once
// Shared by operators. Rank's thread.
#include <coshard/dtensor/ops/from_local.h>
#include <coshard/dtensor/ops/op.h>
#include "dtensor/tensor/local.h"

namespace coshard {

template <class Kernel>
void launch(const OpContext& c, const Kernel& kernel) {
  kernels::run(c.device(), kernel);
}

// x, as replicas on the mesh of `like` if that is a DTensor and x is plain.
inline Tensor on_mesh_of(const Tensor& like, const Tensor& x) {
  if (!like.is_distributed() || !x.defined() || x.is_distributed()) return x;
  return from_local(x, like.mesh());
}

}  // namespace coshard
