#include <gtest/gtest.h>

#include <cmath>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

double value(double x, double other) { return x / std::sqrt(x * x + other * other); }

TEST(Normalize, HasAValueAndAGradientOnShards) {
  on_ranks(2, [](World& world) -> Task<void> {
    const std::vector<double> values = {-3, -0.5, 0.25, 2};
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor plain = Tensor::from_values(world.device(), {2, 2}, DType::F64, values);
    const DTensor x = distribute_tensor(plain, mesh, Shard(0)).requires_grad_();
    CountingObserver seen(world);
    const Tensor y = normalize(x, 1);
    const Tensor first = slice(y, 1, 0, 1);
    co_await backward(sum(first));
    EXPECT_EQ(seen.total(), 0);
    const std::vector<double> got = full_tensor(y.detach()).to_vector();
    const std::vector<double> slope = full_tensor(x.grad()).to_vector();
    constexpr double h = 1e-6;
    for (std::size_t i = 0; i < values.size(); i += 2) {
      const double a = values[i], b = values[i + 1];
      EXPECT_NEAR(got[i], value(a, b), 1e-12);
      EXPECT_NEAR(got[i + 1], value(b, a), 1e-12);
      EXPECT_NEAR(slope[i], (value(a + h, b) - value(a - h, b)) / (2 * h), 1e-8);
      EXPECT_NEAR(slope[i + 1], (value(a, b + h) - value(a, b - h)) / (2 * h), 1e-8);
    }
  });
}

}  // namespace
}  // namespace coshard::testing
