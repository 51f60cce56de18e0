#pragma once
// Values and parameters for tests of captured steps.
#include <vector>

#include <coshard/dtensor/tensor/tensor.h>
#include <coshard/runtime/launch/world.h>

namespace coshard::testing {

using Doubles = std::vector<double>;

inline Tensor ramp(World& world, const Shape& shape, double from = 0) {
  Doubles values;
  for (std::int64_t i = 0; i < numel(shape); ++i)
    values.push_back(0.25 * static_cast<double>(i % 7) + from);
  return Tensor::from_values(world.device(), shape, DType::F32, values);
}

inline Tensor parameter(World& world, double from = -0.5) {
  Tensor w = ramp(world, Shape{4, 3}, from);
  w.set_requires_grad(true);
  return w;
}

}  // namespace coshard::testing
