// cross_entropy: values, and the layouts of logits and targets.
#include <gtest/gtest.h>

#include <cmath>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::counting;
using testing::expect_near;
using testing::expect_values;
using testing::on_ranks;
using testing::refusal;
using testing::shuffled;
using testing::values;
using testing::Values;

Tensor logits() { return (arange(1, 13).view({3, 4}).to(DType::F64) * 0.25).requires_grad_(); }

Tensor soft_targets() { return softmax(flip(logits().detach() * 2, {1}), 1).requires_grad_(); }

TEST(CrossEntropy, MeansOverTheTargetsThatCount) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor logits = values(world, {3, 2}, {0, 0, 5, 5, 1, 1});
    logits.set_requires_grad(true);
    const Tensor target = values(world, {3}, {0, -100, 1}, DType::I64);
    const Tensor loss = cross_entropy(logits, target);
    EXPECT_NEAR(loss.item(), std::log(2), 1e-12);
    run_backward(loss);
    expect_near(logits.grad().to_vector(), {-0.25, 0.25, 0, 0, 0.25, -0.25});
    expect_near(cross_entropy(logits, target, Reduction::None).to_vector(),
                {std::log(2), 0, std::log(2)});
    const Tensor high = values(world, {3}, {0, 2, 0}, DType::I64);
    EXPECT_THROW(cross_entropy(logits, high).item(), Error);
    co_return;
  });
}

TEST(CrossEntropy, TakesProbabilitiesAsTargets) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = logits(), t = soft_targets();
    const Tensor weight = Tensor::from_values(world.device(), {4}, DType::F64, {1, 2, 3, 4});
    expect_near(cross_entropy(x, t), {1.5711605261744161});
    expect_near(cross_entropy(x, t, Reduction::Sum), {4.713481578523249});
    expect_near(cross_entropy(x, t, Reduction::None), Values(3, 1.5711605261744161));
    expect_near(cross_entropy(x, t, Reduction::Mean, -100, 0.1), {1.5565461139628696});
    expect_near(cross_entropy(x, t, Reduction::Mean, -100, 0, weight), {2.7540749509432247});
    const Tensor loss = cross_entropy(x, t, Reduction::Mean, -100, 0.1, weight);
    expect_near(loss, {2.8036715568636397});
    co_await loss.backward();
    expect_near(x.grad()[1], {-0.036091267172129286, -0.04262080535566483, 0.0036475949361952737,
                              0.07506447759159886});
    expect_near(t.grad()[2],
                {0.5400049212176851, 0.93000984243537, 1.1700147636530551, 1.2600196848707401});
    const Tensor x3 = logits().detach().view({2, 3, 2});
    expect_near(cross_entropy(x3, softmax(flip(x3, {1}), 1)), {1.3403480045566378});
    EXPECT_THROW(cross_entropy(x, t, Reduction::Mean, 2), Error);
    EXPECT_THROW(cross_entropy(x, t[0]), Error);
  });
}

TEST(CrossEntropy, OfCutProbabilitiesIsThatOfTheWhole) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2});
    for (const Placement p : {Shard(0), Shard(1), Replicate()}) {
      DTensor x = distribute_tensor(logits(), mesh, p);
      const DTensor loss = cross_entropy(x, distribute_tensor(soft_targets(), mesh, p));
      expect_near(loss.full_tensor(), {1.5711605261744161});
      co_await loss.backward();
      EXPECT_TRUE(x.grad().defined());
    }
  });
}

TEST(CrossEntropyLayout, CutRowsGiveAPartialSumAndAMeanOverAllRanks) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"dp"});
    const Tensor target =
        Tensor::from_values(world.device(), Shape{3}, DType::I64, std::vector<double>{1, -100, 0});
    const Tensor logits = counting(world, {3, 4}, DType::F64, 0.1);
    DTensor cut = distribute_tensor(logits, mesh, Shard(0), std::nullopt);
    cut.set_requires_grad(true);
    const DTensor cut_target = distribute_tensor(target, mesh, Shard(0), std::nullopt);
    EXPECT_EQ(cross_entropy(cut, cut_target, Reduction::Sum).layout(), Layout(Partial()));
    const DTensor loss = cross_entropy(cut, cut_target);
    EXPECT_NEAR(full_tensor(loss.detach()).item(), cross_entropy(logits, target).item(), 1e-12);
    run_backward(loss);
    EXPECT_EQ(cut.grad().layout(), Layout(Shard(0)));
    co_return;
  });
}

TEST(Edges, LabelSmoothingOutsideZeroToOneIsRefused) {
  alone([](World& world) {
    const Tensor logits = counting(world, {2, 3}), target = zeros(world, {2}, DType::I64);
    for (const double smoothing : {-0.1, 1.5, std::nan("")}) {
      const auto of = [&](const Tensor& wanted, const Tensor& weight) {
        return refusal(
            [&] { cross_entropy(logits, wanted, Reduction::Mean, -100, smoothing, weight); });
      };
      for (const std::string& text : {of(target, {}), of(target, ones(world, {3}, DType::F64)),
                                      of(ones(world, {2, 3}, DType::F64), {})})
        EXPECT_EQ(text.find("cross_entropy: label_smoothing"), 0U) << text;
    }
  });
}

TEST(CrossEntropy, TakesClassesInTheSecondDimensionAndWeights) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor logits = shuffled(world, {3, 4, 2});
    const Tensor target = Tensor::from_values(world.device(), Shape{3, 2}, DType::I64,
                                              std::vector<double>{0, 3, -100, 2, 1, 1});
    const Tensor weight = Tensor::from_values(world.device(), Shape{4}, DType::F64,
                                              std::vector<double>{1, 0.5, 2, 0});
    const DTensor w = distribute_tensor(weight, mesh, Replicate(), std::nullopt);
    const Tensor rows = contiguous(transpose(logits, 1, 2));
    EXPECT_NEAR(cross_entropy(logits, target, Reduction::Mean, -100, 0.1).item(),
                cross_entropy_rows(rows, target, Reduction::Mean, -100, 0.1).item(), 1e-12);
    for (const Reduction reduction : {Reduction::None, Reduction::Mean, Reduction::Sum}) {
      const Tensor want = cross_entropy(logits, target, reduction, -100, 0.1, weight);
      for (const Placement p : {Shard(0), Shard(1), Shard(2), Replicate()}) {
        const DTensor x = distribute_tensor(logits, mesh, p, std::nullopt);
        const DTensor t = distribute_tensor(target, mesh, Replicate(), std::nullopt);
        expect_values(cross_entropy(x, t, reduction, -100, 0.1, w), want, "cross_entropy");
      }
    }
    co_return;
  });
}

}  // namespace
}  // namespace coshard
