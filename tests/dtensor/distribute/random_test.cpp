#include <coshard/dtensor/distribute/random.h>

#include <gtest/gtest.h>

#include <cmath>

#include <coshard/dtensor/ops/ops.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::on_ranks;
using Values = std::vector<double>;

TEST(Random, AnyShardingDrawsWhatOneDeviceWould) {
  for (int ranks : {1, 2, 3}) {
    on_ranks(ranks, [](World& world) -> Task<void> {
      const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
      for (Placement p : {Shard(0), Shard(1), Replicate()}) {
        for (DType dtype : {DType::F32, DType::F64}) {
          manual_seed(17);
          const Tensor uniform = rand(world.device(), {7, 5}, dtype);
          const Tensor normal = randn(world.device(), {7, 5}, dtype);
          manual_seed(17);
          EXPECT_EQ(full_tensor(rand(mesh, p, {7, 5}, dtype)).to_vector(), uniform.to_vector());
          EXPECT_EQ(full_tensor(randn(mesh, p, {7, 5}, dtype)).to_vector(), normal.to_vector());
        }
      }
      co_return;
    });
  }
}

// The elements of a [7,5] tensor that this rank holds under `layout`.
Values held(const DeviceMesh& mesh, const Layout& layout, const Values& whole) {
  Values mine;
  for (const Range& rows : ranges_of(layout, mesh.shape(), mesh.coordinate(), 0, 7))
    for (std::int64_t i = rows.begin; i < rows.end; ++i)
      for (const Range& columns : ranges_of(layout, mesh.shape(), mesh.coordinate(), 1, 5))
        for (std::int64_t j = columns.begin; j < columns.end; ++j)
          mine.push_back(whole[static_cast<std::size_t>(5 * i + j)]);
  return mine;
}

TEST(Random, StridedShardsDrawWhatOneDeviceWould) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    manual_seed(17);
    const Values whole = randn(world.device(), {7, 5}, DType::F64).to_vector();
    for (const Layout& layout :
         {Layout(StridedShard(0, 2), Shard(0)), Layout(StridedShard(1, 3), StridedShard(0, 2))}) {
      manual_seed(17);
      EXPECT_EQ(randn(mesh, layout, {7, 5}, DType::F64).to_vector(), held(mesh, layout, whole))
          << layout;
    }
    co_return;
  });
}

TEST(Random, TheTermsOfAPartialReduceToWhatOneDeviceWouldDraw) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    manual_seed(17);
    const Values whole = rand(world.device(), {7, 5}, DType::F64).to_vector();
    for (const Layout& layout :
         {Layout(Partial(), Shard(1)), Layout(Partial(Reduce::Max), Partial(Reduce::Product))}) {
      manual_seed(17);
      EXPECT_EQ(full_tensor(rand(mesh, layout, {7, 5}, DType::F64)).to_vector(), whole) << layout;
    }
    co_return;
  });
}

TEST(Random, DropoutDropsTheSameElementsUnderAnyLayout) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    const Tensor x = ones(world.device(), {11, 8}, DType::F64);
    manual_seed(3);
    const std::vector<double> want = dropout(x, 0.4).to_vector();
    int dropped = 0;
    for (double v : want) dropped += v == 0;
    EXPECT_GT(dropped, 20);
    EXPECT_LT(dropped, 50);
    for (Placement p : {Shard(0), Shard(1), Replicate()}) {
      manual_seed(3);
      const DTensor y = dropout(distribute_tensor(x, mesh, p, std::nullopt), 0.4);
      EXPECT_EQ(full_tensor(y).to_vector(), want);
    }
    co_return;
  });
}

TEST(Random, EveryCallDrawsANewStreamAndTheSeedRestartsThem) {
  on_ranks(1, [](World& world) -> Task<void> {
    manual_seed(1);
    const auto a = rand(world.device(), {16}).to_vector();
    const auto b = rand(world.device(), {16}).to_vector();
    EXPECT_NE(a, b);
    manual_seed(1);
    EXPECT_EQ(rand(world.device(), {16}).to_vector(), a);
    manual_seed(2);
    EXPECT_NE(rand(world.device(), {16}).to_vector(), a);
    co_return;
  });
}

// What an in-place draw leaves in a Partial is its value, not its terms.
TEST(Random, InPlaceDrawsOfAPartialAreThoseOfOneDevice) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    for (const Reduce reduce : {Reduce::Sum, Reduce::Avg, Reduce::Max, Reduce::Product}) {
      manual_seed(4);
      const Tensor plain = empty(world, {4, 3}, DType::F64).normal_(3, 2);
      const Tensor even = empty(world, {4, 3}, DType::F64).uniform_(-2, 5);
      manual_seed(4);
      const DTensor x = empty(mesh, Partial(reduce), {4, 3}, DType::F64).normal_(3, 2);
      const DTensor y = empty(mesh, Partial(reduce), {4, 3}, DType::F64).uniform_(-2, 5);
      for (std::size_t i = 0; i < 12; ++i) {
        EXPECT_NEAR(full_tensor(x).to_vector()[i], plain.to_vector()[i], 1e-14) << Partial(reduce);
        EXPECT_NEAR(full_tensor(y).to_vector()[i], even.to_vector()[i], 1e-14) << Partial(reduce);
      }
    }
    co_return;
  });
}

TEST(Random, RefusesANegativeDeviationAndARangeThatIsNone) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = ones(world, {2});
    EXPECT_THROW(normal_(x, 0, -1), Error);
    EXPECT_THROW(uniform_(x, 1, 0), Error);
    EXPECT_THROW(uniform_(x, 0, std::nan("")), Error);
    EXPECT_EQ(x.to_vector(), (Values{1, 1}));
    co_return;
  });
}

}  // namespace
}  // namespace coshard
