// addmm: a bias that is added once.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;
using testing::placed;
using testing::Values;
using testing::without_collectives;

TEST(Addmm, AddsAReplicatedBiasOnceWhereTheContractionIsCut) {
  without_collectives({2, 2}, [](World& world, const DeviceMesh& mesh) {
    const DTensor a = placed(world, mesh, {3, 5}, Layout(Shard(0), Shard(1)));
    const DTensor b = placed(world, mesh, {5, 2}, Layout(Replicate(), Shard(0)));
    const DTensor bias = placed(world, mesh, {2}, Layout(Replicate(), Replicate()));
    EXPECT_EQ(addmm(bias, a, b).layout(), Layout(Shard(0), Partial()));
  });
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor y =
        addmm(placed(world, mesh, {2}, Replicate()), placed(world, mesh, {3, 5}, Shard(1)),
              placed(world, mesh, {5, 2}, Shard(0)), 3, 0.5);
    const Tensor whole =
        addmm(counting(world, {2}), counting(world, {3, 5}), counting(world, {5, 2}), 3, 0.5);
    EXPECT_EQ(full_tensor(y).to_vector(), whole.to_vector());
    EXPECT_EQ(whole.to_vector()[0], 3 + 0.5 * 95);
    co_return;
  });
}

TEST(Addmm, DoesNotReadTheBiasWithBetaZero) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor nan = Tensor::from_values(world.device(), Shape{1}, DType::F64, Values{NAN});
    const Tensor one = counting(world, {1, 1});
    EXPECT_EQ(addmm(nan, one, one, 0).to_vector(), Values{1});
    EXPECT_THROW(addmm(counting(world, {3}), one, one), Error);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
