#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/factories.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;

TEST(ToLocal, GradPlacementsSayHowThePerRankGradientsAreRead) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    DTensor x = distribute_tensor(counting(world, {2, 2}), mesh, Replicate(), std::nullopt);
    x.set_requires_grad(true);
    run_backward(to_local(x, Layout(Partial())), ones(world.device(), {2, 2}, DType::F64));
    EXPECT_EQ(full_tensor(x.grad()).to_vector(), std::vector<double>(4, 2.0));
    co_return;
  });
}

TEST(FullTensor, GathersAndIsReady) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    const Tensor full = counting(world, {7, 2});
    const Tensor back = full_tensor(distribute_tensor(full, mesh, Shard(0)));
    EXPECT_FALSE(back.in_flight());
    EXPECT_FALSE(back.is_distributed());
    EXPECT_EQ(back.to_vector(), full.to_vector());
    co_return;
  });
}

}  // namespace
}  // namespace coshard
