// Modules start and compute as PyTorch's do.
#include <type_traits>

#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

// 0 forward, an infinite gradient.
struct RootOfZero : Module {
  Task<Tensor> run(Tensor x) override { co_return sqrt(sub(x, x.detach())); }
};

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
