// AdamW against its formula, and its master copies.
#include <gtest/gtest.h>

#include <cmath>

#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include "tests/dtensor/optim/three_steps.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::expect_formula;
using testing::kScales;
using testing::on_ranks;
using testing::three_steps;

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

}  // namespace
}  // namespace coshard
