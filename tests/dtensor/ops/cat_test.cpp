// cat and stack.
#include <gtest/gtest.h>

#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;

TEST(CatLayout, APartialWithAReplicaIsPartialAndAStackGainsADimension) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor plain = counting(world, {3, 2});
    const DTensor p = distribute_tensor(plain, mesh, Partial(), std::nullopt);
    const DTensor r = distribute_tensor(plain, mesh, Replicate(), std::nullopt);
    const DTensor s = distribute_tensor(plain, mesh, Shard(1), std::nullopt);
    CountingObserver seen(world);
    const DTensor joined = cat(std::vector<Tensor>{p, r}, 0);
    const DTensor stacked = stack(std::vector<Tensor>{s, s, r}, 1);
    EXPECT_EQ(seen.total(), 0);
    EXPECT_EQ(joined.layout(), Layout(Partial()));
    EXPECT_EQ(stacked.layout(), Layout(Shard(2)));
    EXPECT_EQ(full_tensor(joined).to_vector(),
              cat(std::vector<Tensor>{plain, plain}, 0).to_vector());
    EXPECT_EQ(full_tensor(stacked).to_vector(),
              stack(std::vector<Tensor>{plain, plain, plain}, 1).to_vector());
    co_return;
  });
}

}  // namespace
}  // namespace coshard
