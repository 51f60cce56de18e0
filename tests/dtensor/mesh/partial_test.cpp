#include "dtensor/mesh/partial.h"

#include <gtest/gtest.h>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/factories.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::on_ranks;
using Values = std::vector<double>;

TEST(Partial, ASplitValueReducesToItselfInAnyOrder) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const Reduce all[] = {Reduce::Sum, Reduce::Avg, Reduce::Min, Reduce::Max, Reduce::Product};
    const Tensor value = Tensor::from_values(world.device(), {3}, DType::F64, {3, -2, 0});
    for (Reduce outer : all) {
      for (Reduce inner : all) {
        const Layout layout(Partial(outer), Partial(inner));
        for (std::optional<int> source : {std::optional<int>(0), std::optional<int>()}) {
          const DTensor x = distribute_tensor(value, mesh, layout, source);
          EXPECT_EQ(x.layout(), layout);
          EXPECT_EQ(full_tensor(x).to_vector(), value.to_vector()) << layout;
        }
        EXPECT_EQ(full_tensor(full(mesh, layout, {2}, 7, DType::F64)).to_vector(), (Values{7, 7}));
      }
    }
    co_return;
  });
}

TEST(Partial, SameShardsIgnoresWhatIsWhole) {
  EXPECT_TRUE(same_shards(Layout(Shard(0), Partial()), Layout(Shard(0), Replicate())));
  EXPECT_FALSE(same_shards(Layout(Shard(0), Partial()), Layout(Shard(1), Partial())));
  EXPECT_FALSE(same_shards(Layout(Shard(0)), Layout(Shard(0), Replicate())));
}

}  // namespace
}  // namespace coshard
