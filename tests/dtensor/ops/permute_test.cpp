// permute, transpose and movedim: views, their gradients, and who is told of them.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::counting;
using testing::placed;
using testing::refusal;
using testing::Values;
using testing::without_moving;

TEST(Permute, TurnsDimensionsWithoutACopy) {
  alone([](World& world) {
    Tensor x = counting(world, {2, 3, 1});
    x.set_requires_grad(true);
    const Tensor y = permute(x, {2, 1, 0});
    EXPECT_EQ(y.shape(), (Shape{1, 3, 2}));
    EXPECT_EQ(y.storage(), x.storage());
    EXPECT_EQ(y.to_vector(), (Values{1, 4, 2, 5, 3, 6}));
    run_backward(sum(mul(y, counting(world, {1, 3, 2}))));
    EXPECT_EQ(x.grad().to_vector(), (Values{1, 3, 5, 2, 4, 6}));
    EXPECT_EQ(refusal([&] { permute(x, {0, 1}); }).find("permute"), 0U);
    EXPECT_EQ(refusal([&] { permute(x, {0, 1, 1}); }).find("permute"), 0U);
  });
}

TEST(Permute, ACutGoesWithItsDimension) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    const DTensor x = placed(world, mesh, {4, 3, 5}, Shard(0));
    EXPECT_EQ(permute(x, {1, 2, 0}).layout(), Layout(Shard(2)));
    EXPECT_EQ(transpose(x, 0, -1).layout(), Layout(Shard(2)));
    EXPECT_EQ(movedim(x, {0}, {1}).layout(), Layout(Shard(1)));
  });
}

// What an observer is told of: what computes, and no view.
TEST(Permute, IsNoComputation) {
  struct Computed final : Observer {
    void computing(std::string_view, ComputeClass, const DescribeInputs&) override { ++count; }
    int count = 0;
  };
  alone([](World& world) {
    const Tensor x = counting(world, {2, 3});
    Computed seen;
    world.add_observer(&seen);
    permute(x, {1, 0});
    EXPECT_EQ(seen.count, 0);
    neg(x);
    EXPECT_EQ(seen.count, 1);
    world.remove_observer(&seen);
  });
}

}  // namespace
}  // namespace coshard
