// dropout: what is dropped, in every layout.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::counting;
using testing::on_ranks;
using testing::placed;
using testing::refusal;
using testing::Values;

TEST(Dropout, DropsWithTheGivenProbabilityAndRepeatsInBackward) {
  on_ranks(1, [](World& world) -> Task<void> {
    manual_seed(5);
    Tensor x = ones(world.device(), {10'000}, DType::F64);
    x.set_requires_grad(true);
    const Tensor y = dropout(x, 0.25);
    const Values kept = y.to_vector();
    double dropped = 0;
    for (double v : kept) dropped += v == 0;
    EXPECT_NEAR(dropped / 10'000, 0.25, 0.02);
    EXPECT_NEAR(*std::max_element(kept.begin(), kept.end()), 1 / 0.75, 1e-12);
    run_backward(sum(y));
    EXPECT_EQ(x.grad().to_vector(), kept);
    EXPECT_NE(dropout(x, 0.25).to_vector(), kept);
    EXPECT_EQ(dropout(x, 0.25, false).id(), x.id());
    co_return;
  });
}

TEST(DropoutLayout, AnyCutDropsWhatOneDeviceDrops) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    manual_seed(11);
    const std::vector<double> whole = dropout(counting(world, {4, 5}), 0.5).to_vector();
    for (const Placement p : {Replicate(), Shard(0), Shard(1)}) {
      manual_seed(11);
      const DTensor y = dropout(placed(world, mesh, {4, 5}, p), 0.5);
      EXPECT_EQ(full_tensor(y).to_vector(), whole);
    }
    co_return;
  });
}

TEST(Edges, DropoutTakesProbabilitiesFromZeroToOneAndFloatsOnly) {
  alone([](World& world) {
    const Tensor x = counting(world, {6});
    EXPECT_EQ(dropout(x, 0).to_vector(), x.to_vector());
    EXPECT_EQ(dropout(x, 1).to_vector(), std::vector<double>(6, 0));
    for (const double p : {-0.1, 1.1})
      EXPECT_EQ(refusal([&] { dropout(x, p); }).find("dropout: probability "), 0U);
    const Tensor integers = counting(world, {6}, DType::I64);
    EXPECT_EQ(refusal([&] { dropout(integers, 0.5); }).find("dropout: "), 0U);
  });
}

}  // namespace
}  // namespace coshard
