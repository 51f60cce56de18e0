#include "styles/nn/together.h"

#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

TEST(ForwardTogether, GivesEachLayersProductAndDrawsNothing) {
  on_ranks(2, [](World& world) -> Task<void> {
    nn::Linear a(4, 6, world, kF64), b(4, 2, world, kF64);
    const Tensor x = random(world, Shape{3, 4});
    const std::uint64_t before = random_state().next_stream;
    const std::vector<nn::Linear*> layers{&a, &b};
    const std::vector<Tensor> made = co_await nn::forward_together(x, layers);
    EXPECT_EQ(random_state().next_stream, before);
    EXPECT_EQ(made.size(), 2U);
    expect_close(made[0], linear(x, a.weight, a.bias));
    expect_close(made[1], linear(x, b.weight, b.bias));
  });
}

}  // namespace
}  // namespace coshard::testing
