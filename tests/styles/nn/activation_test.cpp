// Modules without parameters.
#include <gtest/gtest.h>

#include <cmath>

#include <coshard/styles/nn/activation.h>
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

TEST(Activations, AreTheirFunctions) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = Tensor::from_values(world.device(), {3}, DType::F64, {-1, 0, 2});
    nn::ReLU relu;
    nn::SiLU silu;
    nn::GELU gelu, approximate(true);
    nn::Identity identity;
    const Tensor a = co_await relu.forward(x), b = co_await silu.forward(x),
                 c = co_await gelu.forward(x), d = co_await approximate.forward(x),
                 e = co_await identity.forward(x);
    EXPECT_EQ(a.to_vector(), (std::vector<double>{0, 0, 2}));
    EXPECT_NEAR(b.to_vector()[2], 2 / (1 + std::exp(-2)), 1e-12);
    EXPECT_NEAR(c.to_vector()[2], 1 + std::erf(2 / std::sqrt(2.0)), 1e-12);
    EXPECT_NEAR(d.to_vector()[2], c.to_vector()[2], 1e-3);
    EXPECT_NE(d.to_vector()[2], c.to_vector()[2]);
    EXPECT_EQ(e.id(), x.id());
  });
}

TEST(Activations, DropoutDropsInTrainingAlone) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = full(world, {1000}, 1, DType::F64);
    nn::Dropout half(0.5);
    const Tensor trained = co_await half.forward(x);
    int kept = 0;
    for (const double value : trained.to_vector()) {
      EXPECT_TRUE(value == 0 || value == 2);
      kept += value != 0;
    }
    EXPECT_NEAR(kept, 500, 100);
    half.train(false);
    const Tensor inferred = co_await half.forward(x);
    EXPECT_EQ(inferred.to_vector(), x.to_vector());
    EXPECT_THROW(nn::Dropout(-0.1), Error);
    EXPECT_THROW(nn::Dropout(1.1), Error);
  });
}

}  // namespace
}  // namespace coshard::testing
