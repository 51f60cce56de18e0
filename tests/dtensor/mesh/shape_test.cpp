// Shapes: sizes that cannot be.
#include <gtest/gtest.h>

#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "tests/dtensor/thrown_by.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::on_ranks;
using testing::thrown_by;

TEST(Tensor, NegativeSizesAndOverflowAreRefused) {
  on_ranks(2, [](World& world) -> Task<void> {
    const std::int64_t huge = std::int64_t{1} << 32;
    const auto device = world.device();
    const DeviceMesh mesh = init_device_mesh(world, {2});
    const Tensor one = zeros({1, 1}, DType::F64);
    const std::vector<std::function<void()>> calls{
        [&] {
          Tensor::empty(device, {huge, huge}, DType::F32);
        },
        [&] { Tensor::empty(device, {-1}, DType::F32); },
        [&] { Tensor::empty(device, {std::int64_t{1} << 60}, DType::F64); },
        [&] {
          zeros({huge, huge});
        },
        [&] {
          rand(device, {2, -3});
        },
        [&] {
          zeros(mesh, Shard(0), {huge, huge});
        },
        [&] {
          zeros(mesh, {2, -1});
        },
        [&] {
          one.expand({huge, huge});
        },
        [&] {
          one.repeat({huge, huge});
        },
        [&] {
          one.repeat({1, -1});
        },
        [&] {
          one.expand({std::int64_t{1} << 30, std::int64_t{1} << 30});
        },
        [&] {
          zeros(mesh, {1, 1}).expand({huge, huge});
        },
        [&] {
          from_local(one, mesh, Shard(0), {.shape = Shape{-2, 1}});
        },
        [&] {
          distribute_tensor(one, mesh).repeat({huge, huge});
        },
        [&] { randint(0, 4, {-2}); },
        [&] { eye(-1); },
    };
    for (std::size_t i = 0; i < calls.size(); ++i)
      EXPECT_NE(thrown_by(calls[i]), "nothing") << "call " << i;
    co_return;
  });
}

TEST(Tensor, ANinthDimensionIsAnErrorThatNamesTheOperator) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = ones(world, {1, 1, 1, 1, 1, 1, 1, 4});
    EXPECT_EQ(thrown_by([&] {
                x.unsqueeze(0);
              }).find("unsqueeze: f32[1,1,1,1,1,1,1,4] already has 8 dimensions"),
              0U);
    EXPECT_EQ(thrown_by([&] {
                stack({x, x});
              }).find("unsqueeze: f32[1,1,1,1,1,1,1,4] already has 8 dimensions"),
              0U);
    EXPECT_EQ(thrown_by([&] { x.unflatten(-1, {2, 2}); }).find("unflatten: dimension -1 of"), 0U);
    EXPECT_EQ(x.squeeze(0).unflatten(-1, {2, 2}).ndim(), 8);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
