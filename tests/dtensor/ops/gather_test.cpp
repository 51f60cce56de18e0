// gather and index_select: layouts and gradients.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;
using testing::Values;

TEST(GatherLayout, EqualCutsStayAndAGradientAlongACutIndexIsAPartialSum) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor index = Tensor::from_values(world.device(), Shape{3, 3}, DType::I64,
                                             Values{2, 0, 1, 1, 1, 0, 2, 2, 2});
    const DTensor x = distribute_tensor(counting(world, {3, 4}), mesh, Shard(0), std::nullopt);
    const DTensor rows = distribute_tensor(index, mesh, Shard(0), std::nullopt);
    DTensor whole = distribute_tensor(counting(world, {3, 4}), mesh, Replicate(), std::nullopt);
    whole.set_requires_grad(true);
    const DTensor columns = distribute_tensor(index, mesh, Shard(1), std::nullopt);
    CountingObserver seen(world);
    EXPECT_EQ(gather(x, 1, rows).layout(), Layout(Shard(0)));
    const DTensor y = gather(whole, 1, columns);
    EXPECT_EQ(y.layout(), Layout(Shard(1)));
    EXPECT_EQ(scatter_add_zeros({3, 4}, 1, columns, y.detach()).layout(), Layout(Partial()));
    EXPECT_EQ(index_select(x, 1,
                           distribute_tensor(counting(world, {2}, DType::I64), mesh, Replicate(),
                                             std::nullopt))
                  .layout(),
              Layout(Shard(0)));
    EXPECT_EQ(seen.total(), 0);
    run_backward(sum(y));
    EXPECT_EQ(full_tensor(whole.grad()).to_vector(), (Values{1, 1, 1, 0, 1, 2, 0, 0, 0, 0, 3, 0}));
    co_return;
  });
}

}  // namespace
}  // namespace coshard
