// Modules start and compute as PyTorch's do.
#include <algorithm>
#include <type_traits>

#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

// From -bound to bound, and up to both ends.
void expect_uniform(const Tensor& x, double bound) {
  const std::vector<double> values = x.to_vector();
  const auto [low, high] = std::ranges::minmax(values);
  EXPECT_NEAR(low, -bound, 0.05 * bound);
  EXPECT_NEAR(high, bound, 0.05 * bound);
  EXPECT_LE(std::max(high, -low), bound);
}

double standard_deviation(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  const auto count = static_cast<double>(values.size());
  return std::sqrt(squares / count - sum / count * sum / count);
}

TEST(Defaults, LinearStartsUniformWithTheInverseRootOfItsInputs) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::Linear linear(16, 400, world, {.dtype = DType::F64});
    expect_uniform(linear.weight, 0.25);
    expect_uniform(linear.bias, 0.25);
    nn::Linear normal(16, 400, world, {.dtype = DType::F64, .init_std = 0.02});
    EXPECT_NEAR(standard_deviation(normal.weight.to_vector()), 0.02, 0.001);
    EXPECT_EQ(normal.bias.to_vector(), std::vector<double>(400, 0));
    co_return;
  });
}

TEST(Defaults, EmbeddingStartsNormalWithAZeroRowForPadding) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::Embedding embedding(50, 100, world, {.padding_idx = 3, .dtype = DType::F64});
    EXPECT_NEAR(standard_deviation(embedding.weight.to_vector()), 1, 0.05);
    const Tensor row = select(embedding.weight.detach(), 0, 3);
    EXPECT_EQ(row.to_vector(), std::vector<double>(100, 0));
    co_return;
  });
}

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

// Styles and options may stand inside of a co_await expression.
TEST(Defaults, StylesAndOptionsAreTriviallyDestructible) {
  EXPECT_TRUE(std::is_trivially_destructible_v<ColwiseParallel>);
  EXPECT_TRUE(std::is_trivially_destructible_v<RowwiseParallel>);
  EXPECT_TRUE(std::is_trivially_destructible_v<SequenceParallel>);
  EXPECT_TRUE(std::is_trivially_destructible_v<NoParallel>);
  EXPECT_TRUE(std::is_trivially_destructible_v<PrepareModuleInput>);
  EXPECT_TRUE(std::is_trivially_destructible_v<PrepareModuleOutput>);
  EXPECT_TRUE(std::is_trivially_destructible_v<PrepareModuleInputOutput>);
  EXPECT_TRUE(std::is_trivially_destructible_v<AdamWOptions>);
  EXPECT_TRUE(std::is_trivially_destructible_v<nn::LinearOptions>);
}

// 0 forward, an infinite gradient.
struct RootOfZero : Module {
  Task<Tensor> run(Tensor x) override { co_return sqrt(sub(x, x.detach())); }
};

TEST(FiniteGuard, NamesTheModule) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::Sequential model;
    model.add<nn::Linear>("first", 4, 4, world, kF64);
    model.add<RootOfZero>("second");
    const Tensor x = random(world, Shape{2, 4});
    const FiniteGuard guard(world);
    Task<Tensor> forward = model.forward(x);
    const Tensor y = co_await std::move(forward);
    const Tensor loss = sum(y);
    const std::string text = co_await error_of(backward(loss));
    EXPECT_CONTAINS(text, "rank 0, second: a gradient returned by sqrt, f64[2,4], has inf");
  });
}

}  // namespace
}  // namespace coshard::testing
