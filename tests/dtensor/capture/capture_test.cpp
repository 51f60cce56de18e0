// On every device a captured step gives what its body gives.
#include <coshard/dtensor/capture/capture.h>

#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

Task<Tensor> noisy_step(Tensor w, Optimizer& optimizer, Tensor x) {
  const Tensor y = dropout(matmul(x, w), 0.3);
  Tensor loss = sum(mul(y, y));
  co_await backward(loss);
  co_await optimizer.step();
  optimizer.zero_grad();
  co_return loss;
}

Task<std::vector<double>> noisy_training(World& world, bool captured) {
  manual_seed(3);
  Tensor w = randn(world.device(), Shape{4, 3});
  w.set_requires_grad(true);
  AdamW optimizer({w}, {.lr = 0.1});
  const auto body = [&](std::vector<Tensor> in) { return noisy_step(w, optimizer, in[0]); };
  const CapturedStep step = capture(body, {.eager_steps = 2});
  std::vector<Tensor> losses;
  for (int i = 0; i < 6; ++i) {
    const std::vector<Tensor> in = {randn(world.device(), Shape{2, 4})};
    Task<Tensor> call = captured ? step(in) : body(in);
    losses.push_back(co_await std::move(call));
    EXPECT_FALSE(captured && losses.back().requires_grad());
  }
  EXPECT_EQ(step.recorded(), captured && !on_cpu());
  std::vector<double> all = w.to_vector();
  for (const Tensor& loss : losses) all.push_back(loss.item());
  co_return all;
}

TEST(CapturedStep, GivesTheNumbersOfItsBodyOnEveryDevice) {
  on_ranks(1, [](World& world) -> Task<void> {
    const std::vector<double> eager = co_await noisy_training(world, false);
    const std::vector<double> captured = co_await noisy_training(world, true);
    EXPECT_EQ(eager, captured);
  });
}

TEST(CapturedStep, IsOneThingAtATimeAndBeginsEagerly) {
  on_ranks(1, [](World& world) -> Task<void> {
    EXPECT_THROW(capture([]() -> Task<Tensor> { co_return Tensor(); }, {.eager_steps = 0}), Error);
    std::unique_ptr<CapturedStep> step;
    int refused = 0;
    step = std::make_unique<CapturedStep>(capture([&]() -> Task<Tensor> {
      Task<Tensor> again = (*step)();
      try {
        co_await std::move(again);
      } catch (const Error& error) {
        refused += error.kind() == ErrorKind::BadInput ? 1 : 0;
      }
      co_return Tensor();
    }));
    Task<Tensor> call = (*step)();
    const Tensor nothing = co_await std::move(call);
    EXPECT_FALSE(nothing.defined());
    EXPECT_EQ(refused, 1);
  });
}

}  // namespace
}  // namespace coshard::testing
