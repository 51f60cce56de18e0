#pragma once
// Inputs of tests of elementwise operators.
#include <coshard/dtensor/ops/ops.h>
#include "tests/dtensor/ops/expect.h"
#include "tests/support/ranks.h"

namespace coshard::testing {

using Values = std::vector<double>;

inline Tensor of(World& world, const Values& v, DType dtype = DType::F64) {
  return Tensor::from_values(world.device(), {static_cast<std::int64_t>(v.size())}, dtype, v);
}

}  // namespace coshard::testing
