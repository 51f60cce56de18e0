// Functions of one element and their gradients.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;

TEST(Edges, TheGradientOfClampPassesBetweenTheBoundsOnly) {
  alone([](World& world) {
    const double inf = std::numeric_limits<double>::infinity();
    Tensor x = Tensor::from_values(world.device(), {6}, DType::F64, {0.5, 1, 1.5, 2, 3, inf});
    x.set_requires_grad(true);
    const auto gradient = [&](std::optional<Scalar> min, std::optional<Scalar> max) {
      return run_grad({clamp(x, min, max).sum()}, {x})[0].to_vector();
    };
    EXPECT_EQ(gradient(1, 2), (std::vector<double>{0, 0, 1, 0, 0, 0}));
    EXPECT_EQ(gradient(1, std::nullopt), (std::vector<double>{0, 0, 1, 1, 1, 1}));
    EXPECT_EQ(gradient(std::nullopt, 2), (std::vector<double>{1, 1, 1, 0, 0, 0}));
  });
}

}  // namespace
}  // namespace coshard
