#include <coshard/dtensor/optim/optimizer.h>

#include <gtest/gtest.h>

#include <cmath>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/random.h>
#include <coshard/dtensor/tape.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;

// Three steps with gradients 1, 2, 3, ... times these: falling, so that amsgrad differs.
constexpr double kScales[] = {0.3, 0.1, 0.05};

std::vector<double> adamw_by_hand(std::vector<double> p, AdamWOptions o) {
  std::vector<double> m(p.size()), v(p.size()), largest(p.size());
  for (int step = 1; step <= 3; ++step) {
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double g = (o.maximize ? -1 : 1) * kScales[step - 1] * static_cast<double>(i + 1);
      p[i] *= 1 - o.lr * o.weight_decay;
      m[i] = o.betas[0] * m[i] + (1 - o.betas[0]) * g;
      v[i] = o.betas[1] * v[i] + (1 - o.betas[1]) * g * g;
      const double mh = m[i] / (1 - std::pow(o.betas[0], step));
      largest[i] = std::max(largest[i], v[i]);
      const double vh = (o.amsgrad ? largest[i] : v[i]) / (1 - std::pow(o.betas[1], step));
      p[i] -= o.lr * mh / (std::sqrt(vh) + o.eps);
    }
  }
  return p;
}

std::vector<double> sgd_by_hand(std::vector<double> p, SGDOptions o) {
  std::vector<double> buffer(p.size());
  for (int step = 1; step <= 3; ++step) {
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double sign = o.maximize ? -1 : 1;
      const double g =
          sign * kScales[step - 1] * static_cast<double>(i + 1) + o.weight_decay * p[i];
      buffer[i] = step == 1 ? g : o.momentum * buffer[i] + (1 - o.dampening) * g;
      const double with_momentum = o.nesterov ? g + o.momentum * buffer[i] : buffer[i];
      p[i] -= o.lr * (o.momentum != 0 ? with_momentum : g);
    }
  }
  return p;
}

Task<void> three_steps(World& world, Optimizer& optimizer, const DTensor& x) {
  for (int step = 1; step <= 3; ++step) {
    const Tensor g = counting(world, x.shape(), DType::F64, kScales[step - 1]);
    x.set_grad(distribute_tensor(g, x.mesh(), x.layout(), std::nullopt));
    Task<void> stepped = optimizer.step();
    co_await std::move(stepped);
  }
}

void expect_formula(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12);
}

TEST(AdamW, FollowsTheFormulaUnderAnyLayout) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    for (Placement p : {Replicate(), Shard(0), Shard(1)}) {
      DTensor x = distribute_tensor(counting(world, {5, 2}), mesh, p, std::nullopt);
      x.set_requires_grad(true);
      const AdamWOptions options{.lr = 0.01, .betas = {0.8, 0.9}, .weight_decay = 0.1};
      AdamW optimizer({x}, options);
      Task<void> steps = three_steps(world, optimizer, x);
      co_await std::move(steps);
      expect_formula(full_tensor(x).to_vector(),
                     adamw_by_hand(counting(world, {5, 2}).to_vector(), options));
    }
  });
}

TEST(AdamW, FollowsTheFormulaWithAmsgradAndMaximize) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    for (const bool maximize : {false, true}) {
      DTensor x = distribute_tensor(counting(world, {5, 2}), mesh, Shard(0), std::nullopt);
      x.set_requires_grad(true);
      const AdamWOptions options{
          .lr = 0.01, .betas = {0.8, 0.9}, .amsgrad = true, .maximize = maximize};
      AdamW optimizer({x}, options);
      Task<void> steps = three_steps(world, optimizer, x);
      co_await std::move(steps);
      expect_formula(full_tensor(x).to_vector(),
                     adamw_by_hand(counting(world, {5, 2}).to_vector(), options));
    }
  });
}

TEST(SGD, FollowsTheFormulaWithMomentumNesterovDampeningAndMaximize) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    for (int variant = 0; variant < 5; ++variant) {
      DTensor x = distribute_tensor(counting(world, {5, 2}), mesh, Shard(0), std::nullopt);
      x.set_requires_grad(true);
      const SGDOptions options{.lr = 0.1,
                               .momentum = variant > 0 ? 0.9 : 0,
                               .weight_decay = 0.01,
                               .dampening = variant == 3 ? 0.4 : 0,
                               .nesterov = variant == 2,
                               .maximize = variant == 4};
      SGD optimizer({x}, options);
      Task<void> steps = three_steps(world, optimizer, x);
      co_await std::move(steps);
      expect_formula(full_tensor(x).to_vector(),
                     sgd_by_hand(counting(world, {5, 2}).to_vector(), options));
    }
  });
}

TEST(AdamW, NarrowParametersKeepAnExactMaster) {
  on_ranks(1, [](World& world) -> Task<void> {
    for (const DType dtype : {DType::BF16, DType::F16}) {
      Tensor x = Tensor::from_values(world.device(), {1}, dtype, std::vector<double>{1.0});
      x.set_requires_grad(true);
      AdamW optimizer({x}, {.lr = 1e-4, .weight_decay = 0});
      for (int i = 0; i < 100; ++i) {  // each step is below the resolution of either at 1
        x.set_grad(Tensor::from_values(world.device(), {1}, dtype, std::vector<double>{1.0}));
        Task<void> stepped = optimizer.step();
        co_await std::move(stepped);
      }
      EXPECT_NEAR(x.item(), 0.99, 0.004);
    }
  });
}

TEST(Optimizer, RefusesHyperParametersOutOfRange) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = counting(world, {3});
    x.set_requires_grad(true);
    EXPECT_THROW(SGD({x}, {.lr = -1}), Error);
    EXPECT_THROW(SGD({x}, {.lr = 1, .nesterov = true}), Error);
    EXPECT_THROW(SGD({x}, {.momentum = 0.9, .dampening = 0.1, .nesterov = true}), Error);
    EXPECT_THROW(AdamW({x}, {.betas = {0.9, 1}}), Error);
    EXPECT_THROW(AdamW({x}, {.eps = -1e-8}), Error);
    co_return;
  });
}

TEST(Optimizer, StepsAParameterThatIsGivenTwiceOnce) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = counting(world, {3});
    x.set_requires_grad(true);
    x.set_grad(counting(world, {3}));
    SGD optimizer({x, x}, {.lr = 1});
    Task<void> stepped = optimizer.step();
    co_await std::move(stepped);
    EXPECT_EQ(x.to_vector(), (std::vector<double>{0, 0, 0}));
  });
}

TEST(Optimizer, ZeroGradForgetsAndAMissingGradientIsNoStep) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = counting(world, {3});
    x.set_requires_grad(true);
    x.set_grad(counting(world, {3}));
    SGD optimizer({x}, {.lr = 1});
    optimizer.zero_grad();
    EXPECT_FALSE(x.grad().defined());
    Task<void> stepped = optimizer.step();
    co_await std::move(stepped);
    EXPECT_EQ(x.to_vector(), (std::vector<double>{1, 2, 3}));
  });
}

// What was written to a bf16 parameter stays: a loaded checkpoint, a clamp.
TEST(AdamW, ReadsItsMasterCopyAnewWhenTheParameterWasWrittenTo) {
  on_ranks(1, [](World& world) -> Task<void> {
    for (const bool through_a_view : {false, true}) {
      Tensor x = counting(world, {4}, DType::BF16);
      x.set_requires_grad(true);
      AdamW optimizer({x}, {.lr = 0.5, .weight_decay = 0});
      x.set_grad(counting(world, {4}, DType::BF16));
      Task<void> first = optimizer.step();
      co_await std::move(first);
      if (through_a_view)
        fill_(x.detach(), 8);
      else
        normal_(x.detach(), 8, 0);
      Task<void> second = optimizer.step();
      co_await std::move(second);
      for (const double value : x.to_vector()) EXPECT_NEAR(value, 7.5, 0.05);
    }
  });
}

// Small steps add up in the master copy, which is not read anew after the optimizer's own writes.
TEST(AdamW, KeepsItsMasterCopyBetweenItsOwnSteps) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = full(world.device(), {4}, 256, DType::BF16);
    x.set_requires_grad(true);
    AdamW optimizer({x}, {.lr = 0.25, .weight_decay = 0});
    for (int step = 0; step < 16; ++step) {
      x.set_grad(ones(world.device(), {4}, DType::BF16));
      Task<void> stepped = optimizer.step();
      co_await std::move(stepped);
    }
    EXPECT_EQ(x.to_vector(), std::vector<double>(4, 252));
  });
}

TEST(Optimizer, WithoutParametersIsAnError) {
  on_ranks(1, [](World&) -> Task<void> {
    EXPECT_THROW(AdamW(std::vector<Tensor>()), Error);
    EXPECT_THROW(SGD(std::vector<Tensor>()), Error);
    co_return;
  });
}

TEST(Optimizer, ABackwardThroughWhatAStepHasChangedIsAnError) {
  on_ranks(1, [](World& world) -> Task<void> {
    for (const bool adamw : {false, true}) {
      Tensor x = counting(world, {4});
      x.set_requires_grad(true);
      const Tensor loss = sum(mul(mul(x, x), x));
      x.set_grad(counting(world, {4}));
      std::unique_ptr<Optimizer> optimizer;
      if (adamw)
        optimizer = std::make_unique<AdamW>(std::vector<Tensor>{x});
      else
        optimizer = std::make_unique<SGD>(std::vector<Tensor>{x});
      Task<void> stepped = optimizer->step();
      co_await std::move(stepped);
      EXPECT_THROW(run_backward(loss), Error);
    }
  });
}

TEST(Random, ABackwardThroughWhatARandomFillHasChangedIsAnError) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = counting(world, {4});
    x.set_requires_grad(true);
    const Tensor loss = sum(mul(mul(x, x), x));
    normal_(x.detach(), 0, 1);
    EXPECT_THROW(run_backward(loss), Error);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
