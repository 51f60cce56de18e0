// Arithmetic and comparisons written with operators.
#include <gtest/gtest.h>

#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/explicit_redistribution.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;
using testing::placed;
using testing::Values;

TEST(Operators, InPlaceWritesWhereTheHandlePoints) {
  on_ranks(2, [](World& world) -> Task<void> {
    const Tensor x = counting(world, {4});
    const Tensor same = x;
    x += 1;
    x -= 0.5;
    x *= 2;
    x /= 4.0;
    EXPECT_EQ(same.to_vector(), (Values{0.75, 1.25, 1.75, 2.25}));
    Tensor y = counting(world, {4});
    const void* id = y.id();
    y += y;
    y -= counting(world, {4});
    y *= y;
    y /= counting(world, {4});
    EXPECT_EQ(y.id(), id);
    EXPECT_EQ(y.to_vector(), (Values{1, 2, 3, 4}));
    const DTensor cut = distribute_tensor(y, init_device_mesh(world, {2}), Shard(0));
    cut += 1;
    EXPECT_EQ(cut.full_tensor().to_vector(), (Values{2, 3, 4, 5}));
    Tensor leaf = counting(world, {4}).requires_grad_();
    EXPECT_THROW(leaf += 1, Error);
    co_return;
  });
}

TEST(Operators, TellTheirLine) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = counting(world, {2}), y = counting(world, {3});
    const int here = __LINE__;
    for (const auto& wrong : {std::function<Tensor()>([&] { return x + y; }),
                              std::function<Tensor()>([&] { return x == y; }),
                              std::function<Tensor()>([&] { return x[7]; })}) {
      try {
        wrong();
        ADD_FAILURE();
      } catch (const Error& error) {
        EXPECT_GT(error.site().line, here);
        EXPECT_LT(error.site().line, here + 4);
      }
    }
    co_return;
  });
}

TEST(Operators, APlainNumberTensorStandsBesideDTensors) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2});
    DTensor x = distribute_tensor(counting(world, {4}), mesh, Shard(0)).requires_grad_();
    Tensor scale = full(world.device(), {}, 3, DType::F64, true);
    const DTensor y = x * scale + scale;
    EXPECT_EQ(y.layout(), Layout(Shard(0)));
    EXPECT_EQ(y.full_tensor().to_vector(), (Values{6, 9, 12, 15}));
    co_await y.sum().backward();
    EXPECT_EQ(x.grad().full_tensor().to_vector(), (Values{3, 3, 3, 3}));
    EXPECT_EQ(scale.grad().to_vector(), Values{10 + 4});
    const DTensor copy = clone(x.detach());
    copy *= scale.detach();
    EXPECT_EQ(copy.full_tensor().to_vector(), (Values{3, 6, 9, 12}));
    EXPECT_THROW(scale.detach() += copy.sum(), Error);
    try {
      add(x, counting(world, {4}));
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("distribute_tensor"), std::string::npos);
    }
  });
}

TEST(Operators, ImplicitReplicationLetsPlainTensorsStandBesideDTensors) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DTensor x =
        distribute_tensor(counting(world, {4}), init_device_mesh(world, {2}), Shard(0));
    const Tensor plain = counting(world, {4});
    {
      const ImplicitReplication scope;
      EXPECT_EQ((x * plain).full_tensor().to_vector(), (Values{1, 4, 9, 16}));
      EXPECT_EQ((x * plain).layout(), Layout(Shard(0)));
      EXPECT_THROW(add_(plain, x), Error);
    }
    EXPECT_THROW(x * plain, Error);
    co_return;
  });
}

TEST(Operators, RefuseAMixtureOfPlainAndDistributedTensors) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    EXPECT_THROW(placed(world, mesh, {3}, Replicate()) + counting(world, {3}), Error);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
