#include <gtest/gtest.h>

#include <cmath>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

double value(double x) { return x * std::tanh(std::log1p(std::exp(x))); }

TEST(Mish, HasAValueAndAGradientOnShards) {
  on_ranks(2, [](World& world) -> Task<void> {
    const std::vector<double> values = {-3, -0.5, 0.25, 2};
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor plain = Tensor::from_values(world.device(), {4}, DType::F64, values);
    const DTensor x = distribute_tensor(plain, mesh, Shard(0)).requires_grad_();
    CountingObserver seen(world);
    const Tensor y = mish(x);
    co_await backward(sum(y));
    EXPECT_EQ(seen.total(), 0);
    const std::vector<double> got = full_tensor(y.detach()).to_vector();
    const std::vector<double> slope = full_tensor(x.grad()).to_vector();
    constexpr double h = 1e-6;
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(got[i], value(values[i]), 1e-12);
      EXPECT_NEAR(slope[i], (value(values[i] + h) - value(values[i] - h)) / (2 * h), 1e-8);
    }
  });
}

}  // namespace
}  // namespace coshard::testing
