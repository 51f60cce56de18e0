// layer_norm: several dimensions, and where they are cut.
#include <gtest/gtest.h>

#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::CountingObserver;
using testing::expect_values;
using testing::on_ranks;
using testing::shuffled;

TEST(Norms, SeveralDimensionsAreNormalisedTogetherAndGatheredWhereCut) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor x = shuffled(world, {4, 3, 5});
    const Tensor weight = shuffled(world, {3, 5});
    const DTensor w = distribute_tensor(weight, mesh, Replicate(), std::nullopt);
    for (const int dim : {0, 1, 2}) {
      const DTensor cut = distribute_tensor(x, mesh, Shard(dim), std::nullopt);
      CountingObserver seen(world);
      const DTensor y = layer_norm(cut, Shape{3, 5}, w, w);
      const DTensor z = rms_norm(cut, Shape{3, 5}, w);
      EXPECT_EQ(seen.total(), dim == 0 ? 0 : 2);
      EXPECT_TRUE(y.layout() == Layout(Shard(0)) || (dim > 0 && y.layout().is_replicate())) << y;
      expect_values(y, layer_norm(x, Shape{3, 5}, weight, weight), "layer_norm");
      expect_values(z, rms_norm(x, Shape{3, 5}, weight), "rms_norm");
    }
    EXPECT_THROW(layer_norm(x, Shape{4, 5}, {}, {}), Error);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
