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

// Gemma's: in f32, rounded once.
TEST(RMSNorm, WithAnOffsetMultipliesByOneAndTheWeight) {
  on_ranks(1, [](World& world) -> Task<void> {
    for (const DType dtype : {DType::F32, DType::F64, DType::BF16}) {
      nn::RMSNorm norm(6, world, {.eps = 1e-6, .offset = true, .dtype = dtype});
      EXPECT_EQ(norm.weight.to_vector(), std::vector<double>(6, 0));
      normal_(norm.weight.detach(), 0, 0.01);  // lost beside 1 in bf16
      const Tensor x = random(world, Shape{3, 6}, dtype);
      const Tensor y = co_await norm.forward(x);
      EXPECT_EQ(y.dtype(), dtype);
      const DType wide = dtype == DType::F64 ? DType::F64 : DType::F32;
      const Tensor xs = to(x, wide), scale = to(norm.weight.detach(), wide) + 1;
      const Tensor want = xs * rsqrt(mean(xs * xs, {-1}, true) + 1e-6) * scale;
      expect_close(to(y.detach(), wide), to(to(want, dtype), wide),
                   dtype == DType::BF16 ? 0.004 : 1e-6);
      co_await backward(sum(y * y));
      EXPECT_EQ(norm.weight.grad().shape(), (Shape{6}));
      nn::RMSNorm bare(6, world, {.affine = false, .offset = true, .dtype = dtype});
      EXPECT_FALSE(bare.weight.defined());
      co_await bare.forward(x);
    }
  });
}

// A plain x is the rank's own rows, as many as it has; the weight's gradient is a sum over ranks.
TEST(RMSNorm, OfAPlainInputBesideADTensorWeight) {
  on_ranks(2, [](World& world) -> Task<void> {
    auto [plain, norm] = twins<nn::RMSNorm>(4, world, nn::RMSNormOptions{.dtype = DType::F64});
    norm->weight = from_local(norm->weight.detach(), line(world), Replicate());
    norm->weight.set_requires_grad(true);
    const Tensor x = random(world, Shape{5, 4});
    const Tensor own = world.rank() == 0 ? narrow(x, 0, 0, 2) : narrow(x, 0, 2, 3);
    const Tensor y = co_await norm->forward(own), want = co_await plain->forward(x);
    co_await backward(sum(y * y));
    co_await backward(sum(want * want));
    EXPECT_EQ(norm->weight.grad().layout(), Layout(Partial()));
    expect_close(norm->weight.grad(), plain->weight.grad());
  });
}

}  // namespace
}  // namespace coshard::testing
