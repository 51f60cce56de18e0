#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/support/ranks.h"

#include <gtest/gtest.h>

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;

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

TEST(Optimizer, RefusesWhatIsExpanded) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor row = counting(world, {1, 4});
    for (Tensor x : {row, Tensor(distribute_tensor(row, mesh, Shard(1)))}) {
      Tensor rows = expand(x, {3, 4}).detach();
      rows.set_requires_grad(true);
      EXPECT_THROW(SGD({rows}, {.lr = 1}), Error);
      Tensor own = rows.detach().clone();
      own.set_requires_grad(true);
      SGD sgd({own}, {.lr = 1});
    }
    co_return;
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

TEST(Optimizer, WithoutParametersIsAnError) {
  on_ranks(1, [](World&) -> Task<void> {
    EXPECT_THROW(AdamW(std::vector<Tensor>()), Error);
    EXPECT_THROW(SGD(std::vector<Tensor>()), Error);
    co_return;
  });
}

TEST(Optimizer, StepsOnlyItsElementsOfMemoryThatIsNotContiguous) {
  on_ranks(1, [](World& world) -> Task<void> {
    for (const bool adamw : {false, true}) {
      const Tensor memory = counting(world, {3, 3});
      Tensor x = t(memory.narrow(1, 0, 2)).detach();
      x.set_requires_grad(true);
      x.set_grad(Tensor::from_values(world.device(), {2, 3}, DType::F64, {1, 0, 0, 0, -1, 0}));
      std::unique_ptr<Optimizer> optimizer;
      if (adamw)
        optimizer = std::make_unique<AdamW>(std::vector<Tensor>{x},
                                            AdamWOptions{.lr = 1, .eps = 1e-30, .weight_decay = 0});
      else
        optimizer = std::make_unique<SGD>(std::vector<Tensor>{x}, SGDOptions{.lr = 1});
      Task<void> stepped = optimizer->step();
      co_await std::move(stepped);
      const std::vector<double> got = memory.to_vector();
      EXPECT_NEAR(got[0], 0, 1e-9) << adamw;
      EXPECT_NEAR(got[4], 6, 1e-9) << adamw;
      EXPECT_EQ((std::vector{got[2], got[5], got[8]}), (std::vector<double>{3, 6, 9})) << adamw;
    }
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
