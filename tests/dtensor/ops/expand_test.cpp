// expand and broadcasting: shared memory, summed gradients, layouts.
#include <gtest/gtest.h>

#include <coshard/dtensor/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::placed;
using testing::refusal;
using testing::Values;
using testing::values;
using testing::without_moving;

TEST(Expand, StretchesOnesWithoutACopyAndSumsTheGradient) {
  alone([](World& world) {
    Tensor x = values(world, {2, 1}, {3, 4});
    x.set_requires_grad(true);
    const Tensor y = expand(x, {3, -1, 2});
    EXPECT_EQ(y.shape(), (Shape{3, 2, 2}));
    EXPECT_EQ(y.storage(), x.storage());
    EXPECT_EQ(y.to_vector(), (Values{3, 3, 4, 4, 3, 3, 4, 4, 3, 3, 4, 4}));
    run_backward(sum(y));
    EXPECT_EQ(x.grad().to_vector(), (Values{6, 6}));
    EXPECT_EQ(refusal([&] { expand(x, {3, 2}); }).find("expand"), 0U);
  });
}

TEST(Expand, ACutDimensionStaysCutBehindNewOnes) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    const DTensor x = placed(world, mesh, {4, 1}, Shard(0));
    EXPECT_EQ(expand(x, {3, 4, 5}).layout(), Layout(Shard(1)));
  });
}

}  // namespace
}  // namespace coshard
