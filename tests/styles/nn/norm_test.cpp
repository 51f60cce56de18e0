// LayerNorm and RMSNorm.
#include <type_traits>

#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

// torch 2.15: nn.RMSNorm(4)(torch.full((1, 4), 1e-3)) is 0.945245, in f64 1.0.
TEST(Defaults, RMSNormTakesTheEpsilonOfTheDtypeItComputesIn) {
  on_ranks(1, [](World& world) -> Task<void> {
    for (const DType dtype : {DType::F32, DType::F64, DType::BF16}) {
      nn::RMSNorm norm(4, world, {.dtype = dtype});
      const Tensor x = full(world.device(), Shape{1, 4}, 1e-3, dtype);
      Task<Tensor> forward = norm.forward(x);
      const Tensor y = co_await std::move(forward);
      const double tolerance = dtype == DType::BF16 ? 0.004 : 1e-5;
      EXPECT_NEAR(y.to_vector()[0], dtype == DType::F64 ? 1.0 : 0.945245, tolerance) << dtype;
    }
  });
}

}  // namespace
}  // namespace coshard::testing
