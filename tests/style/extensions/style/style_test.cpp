#include <gtest/gtest.h>

#include <coshard/styles/gathered_columns.h>
#include <coshard/styles/nn/linear.h>
#include <coshard/styles/parallelize.h>
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

TEST(GatheredColumns, ShardsTheWeightAndGivesTheOutputOfOneRank) {
  on_ranks(2, [](World& world) -> Task<void> {
    nn::Linear linear(3, 4, world, {.dtype = DType::F64});
    const Tensor x = counting(world, {2, 3});
    const Tensor want = co_await linear.forward(x);
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    CountingObserver seen(world);
    ParallelPlan plan{GatheredColumns{}};
    co_await parallelize_module(linear, mesh, plan);
    EXPECT_EQ(linear.weight.layout(), Layout(Shard(0)));
    EXPECT_EQ(linear.bias.layout(), Layout(Shard(0)));
    const Tensor y = co_await linear.forward(x);
    EXPECT_FALSE(y.is_distributed());
    EXPECT_EQ(y.to_vector(), want.to_vector());
    EXPECT_EQ(seen.count(CollectiveKind::AllGather), 1);
  });
}

}  // namespace
}  // namespace coshard::testing
