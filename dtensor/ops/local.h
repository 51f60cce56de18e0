#pragma once
// Shared by operators' forwards. Rank's thread, local tensors only.
#include <coshard/dtensor/ops/op.h>
#include "dtensor/tensor/local.h"

namespace coshard {

template <class Kernel>
void launch(const OpContext& c, const Kernel& kernel) {
  kernels::run(c.device(), kernel);
}

}  // namespace coshard
