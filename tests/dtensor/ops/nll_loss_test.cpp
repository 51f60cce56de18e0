// nll_loss: reductions, weights, what is ignored, layouts.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::placed;
using testing::refusal;
using testing::Values;
using testing::values;
using testing::without_moving;

TEST(NllLossOperator, AveragesByTheWeightsOfTheTargetsThatCount) {
  alone([](World& world) {
    Tensor x = values(world, {3, 2}, {-1, -2, -3, -4, -5, -6});
    x.set_requires_grad(true);
    const Tensor target = values(world, {3}, {1, -100, 0}, DType::I64);
    const Tensor weight = values(world, {2}, {3, 1});
    EXPECT_EQ(nll_loss(x, target, Reduction::None).to_vector(), (Values{2, 0, 5}));
    EXPECT_EQ(nll_loss(x, target, Reduction::Sum, -100, weight).item(), 17);
    EXPECT_EQ(nll_loss(x, target, Reduction::Mean, -100, weight).item(), 17.0 / 4);
    run_backward(nll_loss(x, target));
    EXPECT_EQ(x.grad().to_vector(), (Values{0, -0.5, 0, 0, -0.5, 0}));
    const Tensor high = values(world, {3}, {0, 2, 0}, DType::I64);
    EXPECT_NE(refusal([&] { nll_loss(x, high).item(); }), "accepted");
  });
}

TEST(NllLossOperator, ErrorsNameTheFunctionThatWasCalled) {
  alone([](World& world) {
    const Tensor x = values(world, {1, 2, 2}, {1, 2, 3, 4});
    const Tensor target = values(world, {2}, {0, 1}, DType::I64);
    EXPECT_EQ(refusal([&] { cross_entropy(x, target); }),
              "cross_entropy: target [2] does not match logits [1,2,2]; it is [1,2] for those");
    EXPECT_EQ(refusal([&] { nll_loss(x, target); }).find("nll_loss: target [2] does not"), 0U);
    const Tensor none = values(world, {0}, {});
    EXPECT_EQ(refusal([&] { amax(none); }).find("amax: a reduced dimension of [0] is empty"), 0U);
    EXPECT_EQ(refusal([&] { amin(none); }).find("amin: "), 0U);
    EXPECT_EQ(refusal([&] { mean(values(world, {1}, {1}, DType::I64)); }).find("mean: i64"), 0U);
    EXPECT_EQ(refusal([&] { max(none, 0); }).find("max: a reduced"), 0U);
    EXPECT_EQ(refusal([&] { min(none, 0); }).find("min: a reduced"), 0U);
    EXPECT_EQ(refusal([&] { zeros(Shard(0), {2}); }).find("zeros, randn or another factory: "), 0U);
  });
}

TEST(NllLossOperator, OfCutRowsIsAPartialSum) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    const DTensor x = placed(world, mesh, {4, 3}, Shard(0));
    const Tensor classes = values(world, {4}, {0, 2, 1, 0}, DType::I64);
    const DTensor target = distribute_tensor(classes, mesh, Shard(0), std::nullopt);
    EXPECT_EQ(nll_loss(x, target, Reduction::Sum).layout(), Layout(Partial()));
    EXPECT_EQ(nll_loss(x, target, Reduction::None).layout(), Layout(Shard(0)));
  });
}

}  // namespace
}  // namespace coshard
