#pragma once
// Parameters of tests of optimizers.
#include <coshard/dtensor/redistribute/redistribute.h>
#include "tests/support/ranks.h"

namespace coshard::testing {

inline DTensor parameter(World& world, const DeviceMesh& mesh, const Shape& shape, Placement p) {
  DTensor x = distribute_tensor(counting(world, shape), mesh, p, std::nullopt);
  x.set_requires_grad(true);
  return x;
}

}  // namespace coshard::testing
