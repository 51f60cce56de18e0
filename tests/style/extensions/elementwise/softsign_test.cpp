#include <gtest/gtest.h>

#include <cmath>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

TEST(Softsign, HasAValueAndAGradientOnShards) {
  for (const DType dtype : {DType::F32, DType::F64})
    on_ranks(2, [dtype](World& world) -> Task<void> {
      const std::vector<double> values = {-3, -0.5, 0, 0.25, 1, 7};
      const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
      const Tensor plain = Tensor::from_values(world.device(), {6}, dtype, values);
      const DTensor x = distribute_tensor(plain, mesh, Shard(0)).requires_grad_();
      CountingObserver seen(world);
      const Tensor y = softsign(x);
      co_await backward(sum(y));
      EXPECT_EQ(seen.total(), 0);
      EXPECT_EQ(y.layout(), Layout(Shard(0)));
      const std::vector<double> got = full_tensor(y.detach()).to_vector();
      const std::vector<double> slope = full_tensor(x.grad()).to_vector();
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double scale = 1 + std::abs(values[i]);
        EXPECT_NEAR(got[i], values[i] / scale, 1e-6);
        EXPECT_NEAR(slope[i], 1 / (scale * scale), 1e-6);
      }
    });
}

}  // namespace
}  // namespace coshard::testing
