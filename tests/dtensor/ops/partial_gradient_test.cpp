#include "dtensor/ops/partial_gradient.h"

#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::CountingObserver;
using testing::on_ranks;
using Values = std::vector<double>;

Tensor row(World& world, const Values& values) {
  return Tensor::from_values(world.device(), {static_cast<std::int64_t>(values.size())}, DType::F64,
                             values);
}

// The gradient that a loss weighted by `weights` gives each rank's term of the reduced value.
Values gradient_of(World& world, const DeviceMesh& mesh, const Layout& layout, const Values& term,
                   const Values& weights) {
  Tensor local = row(world, term);
  local.set_requires_grad(true);
  const DTensor whole =
      redistribute(from_local(local, mesh, layout), Layout::filled(mesh.ndim(), Replicate()))
          .tensor();
  run_backward(whole,
               from_local(row(world, weights), mesh, Layout::filled(mesh.ndim(), Replicate())));
  return local.grad().to_vector();
}

TEST(Partial, TheTermOfAnAverageGetsItsPartOfTheGradient) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {4}, {"tp"});
    EXPECT_EQ(gradient_of(world, mesh, Partial(Reduce::Avg), {1, 2}, {4, 8}), (Values{1, 2}));
    EXPECT_EQ(gradient_of(world, mesh, Partial(Reduce::Sum), {1, 2}, {4, 8}), (Values{4, 8}));
    co_return;
  });
}

TEST(Partial, OnlyTheExtremeGetsAGradientAndRanksThatHoldItTogetherShareIt) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    const double r = world.rank();
    // rank 0 holds 0, 5, 7; rank 1 holds 1, 4, 7; rank 2 holds 2, 3, 0
    const Values term{r, 5 - r, r == 2 ? 0.0 : 7.0};
    const Values of_max = gradient_of(world, mesh, Partial(Reduce::Max), term, {2, 4, 6});
    const Values of_min = gradient_of(world, mesh, Partial(Reduce::Min), term, {2, 4, 6});
    const Values want_max[] = {{0, 4, 3}, {0, 0, 3}, {2, 0, 0}};
    const Values want_min[] = {{2, 0, 0}, {0, 0, 0}, {0, 4, 6}};
    EXPECT_EQ(of_max, want_max[world.rank()]);
    EXPECT_EQ(of_min, want_min[world.rank()]);
    co_return;
  });
}

TEST(Partial, AFactorGetsTheGradientTimesTheOtherFactorsZerosIncluded) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    const Values term = Values{world.rank() + 2.0, world.rank() + 0.0};
    const Values want[] = {{10 * 12, 10 * 2}, {10 * 8, 0}, {10 * 6, 0}};
    EXPECT_EQ(gradient_of(world, mesh, Partial(Reduce::Product), term, {10, 10}),
              want[world.rank()]);
    co_return;
  });
}

TEST(Partial, TwoReductionsChainTheLastOneFirst) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    // max over dp of the sum over tp: 1+2 against 4+8
    const Values term{static_cast<double>(1 << world.rank())};
    const Values max_of_sums =
        gradient_of(world, mesh, Layout(Partial(Reduce::Max), Partial()), term, {5});
    EXPECT_EQ(max_of_sums, (Values{world.rank() >= 2 ? 5.0 : 0.0}));
    // the average over dp of the product over tp
    const Values means =
        gradient_of(world, mesh, Layout(Partial(Reduce::Avg), Partial(Reduce::Product)), term, {2});
    const Values other[] = {{2}, {1}, {8}, {4}};
    EXPECT_EQ(means, other[world.rank()]);
    co_return;
  });
}

TEST(Partial, OnlyExtremesAndProductsCostACollectiveInBackward) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    for (Reduce reduce : {Reduce::Sum, Reduce::Avg, Reduce::Min, Reduce::Max, Reduce::Product}) {
      Tensor local = row(world, {1, 2});
      local.set_requires_grad(true);
      const DTensor x = from_local(local, mesh, Partial(reduce));
      const DTensor dy = ones(mesh, Replicate(), {2}, DType::F64);
      CountingObserver seen(world);
      run_backward(x, dy);
      EXPECT_EQ(seen.total(), reduce == Reduce::Sum || reduce == Reduce::Avg ? 0 : 1);
      EXPECT_EQ(seen.count(CollectiveKind::AllGather), seen.total());
    }
    co_return;
  });
}

}  // namespace
}  // namespace coshard
