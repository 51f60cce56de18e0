#pragma once
// Three steps of an optimizer with gradients that fall.
#include <gtest/gtest.h>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include "tests/support/ranks.h"

namespace coshard::testing {

// Three steps with gradients 1, 2, 3, ... times these: falling, so that amsgrad differs.
inline constexpr double kScales[] = {0.3, 0.1, 0.05};

inline Task<void> three_steps(World& world, Optimizer& optimizer, const DTensor& x) {
  for (int step = 1; step <= 3; ++step) {
    const Tensor g = counting(world, x.shape(), DType::F64, kScales[step - 1]);
    x.set_grad(distribute_tensor(g, x.mesh(), x.layout(), std::nullopt));
    Task<void> stepped = optimizer.step();
    co_await std::move(stepped);
  }
}

inline void expect_formula(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12);
}

}  // namespace coshard::testing
