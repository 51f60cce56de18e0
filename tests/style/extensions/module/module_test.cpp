#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/styles/colwise.h>
#include <coshard/styles/nn/gated_linear.h>
#include <coshard/styles/parallelize.h>
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

TEST(GatedLinear, IsShardedByAStyleOfTheLibrary) {
  on_ranks(2, [](World& world) -> Task<void> {
    nn::GatedLinear gated(3, 4, world, DType::F64);
    const Tensor x = counting(world, {2, 3});
    const Tensor want = co_await gated.forward(x);
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    ParallelPlan plan{ColwiseParallel{.output_layouts = Replicate()}};
    co_await parallelize_module(gated, mesh, plan);
    EXPECT_EQ(gated.gate.layout(), Layout(Shard(0)));
    EXPECT_EQ(gated.up.local_shape(), Shape({2, 3}));
    const Tensor y = co_await gated.forward(x);
    EXPECT_EQ(y.to_vector(), want.to_vector());
    co_await backward(sum(y));
    EXPECT_EQ(gated.gate.grad().layout(), Layout(Shard(0)));
  });
}

}  // namespace
}  // namespace coshard::testing
