// scatter and scatter_add: values, gradients, layouts.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::counting;
using testing::placed;
using testing::Values;
using testing::values;
using testing::without_moving;

TEST(Scatter, TheLastOfEqualIndicesCountsAndEveryOneHasAGradient) {
  alone([](World& world) {
    Tensor x = values(world, {4}, {1, 2, 3, 4}), src = values(world, {3}, {10, 20, 30});
    x.set_requires_grad(true);
    src.set_requires_grad(true);
    const Tensor index = values(world, {3}, {2, 0, 2}, DType::I64);
    const Tensor y = scatter(x, 0, index, src);
    EXPECT_EQ(y.to_vector(), (Values{20, 2, 30, 4}));
    EXPECT_EQ(scatter(x, 0, index, -1.5).to_vector(), (Values{-1.5, 2, -1.5, 4}));
    EXPECT_EQ(scatter_add(x, 0, index, src).to_vector(), (Values{21, 2, 43, 4}));
    run_backward(sum(mul(y, counting(world, {4}))));
    EXPECT_EQ(x.grad().to_vector(), (Values{0, 2, 0, 4}));
    EXPECT_EQ(src.grad().to_vector(), (Values{3, 1, 3}));
  });
}

TEST(Scatter, CutsOfOtherDimensionsStayAndPartialsToo) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    const Tensor zeros = values(world, {4, 3}, Values(12, 0), DType::I64);
    const DTensor rows = distribute_tensor(zeros, mesh, Shard(0), std::nullopt);
    const DTensor all = distribute_tensor(zeros, mesh, Replicate(), std::nullopt);
    EXPECT_EQ(scatter(placed(world, mesh, {4, 3}, Shard(0)), 1, rows, 0.5).layout(),
              Layout(Shard(0)));
    const DTensor p = placed(world, mesh, {4, 3}, Partial());
    EXPECT_EQ(scatter(p, 1, all, p).layout(), Layout(Partial()));
    EXPECT_EQ(scatter(p, 1, all, 0.0).layout(), Layout(Partial()));
  });
}

}  // namespace
}  // namespace coshard
