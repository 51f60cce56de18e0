// What backward frees, keeps and refuses; grad and modes.
#include <gtest/gtest.h>

#include <cmath>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/autograd.h"

namespace coshard::testing {
namespace {

TEST(RetainGraph, ASecondBackwardNeedsIt) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = leaf_of(world, {3});
    const Tensor shared = x * x;
    const Tensor loss = sum(shared), other = sum(shared * 2.0);
    co_await backward(loss, BackwardOptions{.retain_graph = true});
    co_await backward(loss);
    EXPECT_EQ(x.grad().to_vector(), (Values{4, 8, 12}));
    const std::string text = refusal_of([&] { run_backward(loss); });
    EXPECT_TRUE(says(text, "mul: ") &&
                says(text, "a second time, but the first freed what it saved; pass retain_graph"))
        << text;
    EXPECT_TRUE(says(refusal_of([&] { run_backward(other); }), "a second time"));
    const Tensor nothing_saved = sum(x + x);
    run_backward(nothing_saved);
    run_backward(nothing_saved);
    EXPECT_EQ(x.grad().to_vector(), (Values{8, 12, 16}));
  });
}

TEST(RetainGraph, IsImpliedByCreateGraph) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = leaf_of(world, {3});
    const Tensor loss = sum(x * x);
    run_backward(loss, {.create_graph = true});
    x.set_grad({});
    run_backward(loss);
    EXPECT_EQ(x.grad().to_vector(), (Values{2, 4, 6}));
    x.set_grad({});
    co_return;
  });
}

TEST(RetainGraph, WithoutItNothingSavedIsHeldWhileTheLossLives) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    DTensor w = distribute_tensor(counting(world, {256, 256}, DType::F32, 1e-3), mesh, Shard(0));
    w.set_requires_grad(true);
    const DTensor x =
        distribute_tensor(counting(world, {256, 256}, DType::F32, 1e-3), mesh, Replicate());
    const auto in_use = [&] { return world.device()->memory().in_use; };
    const std::size_t before = in_use();
    std::vector<Tensor> losses;
    std::size_t first = 0;
    for (int step = 0; step < 4; ++step) {
      w.set_grad({});
      DTensor h = x;
      for (int layer = 0; layer < 3; ++layer) {
        const DTensor y = linear(h, w);
        const Redistribution whole = redistribute(silu(y), Replicate());
        h = softmax(co_await whole, 1);
      }
      losses.push_back(mean(h * h));
      h = DTensor();
      co_await backward(losses.back());
      w.grad().wait();
      if (step == 1) first = in_use();
    }
    EXPECT_LE(in_use(), first + 2 * 1024);
    const std::size_t workspace = on_cpu() ? 0 : 33 * 1024 * 1024;  // of products, kept
    EXPECT_LE(in_use(), before + workspace + std::size_t{256} * 256 * 4 + 64 * 1024);
  });
}

TEST(Grad, TouchesNoGradAndGivesAnyTensorsGradient) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = leaf_of(world, {3}), y = leaf_of(world, {3});
    const Tensor h = x * y;
    const Tensor loss = sum(h * h);
    const std::vector<Tensor> outputs{loss}, inputs{h, x, x};
    const std::vector<Tensor> gradients = co_await grad(outputs, inputs);
    EXPECT_EQ(gradients[0].to_vector(), (Values{2, 8, 18}));
    EXPECT_EQ(gradients[1].to_vector(), (Values{2, 16, 54}));
    EXPECT_EQ(gradients[2].to_vector(), (Values{2, 16, 54}));
    EXPECT_FALSE(x.grad().defined());
    EXPECT_FALSE(y.grad().defined());
    EXPECT_FALSE(h.grad().defined());
  });
}

TEST(Grad, WalksOnlyWhatLiesBetween) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = leaf_of(world, {3}), y = leaf_of(world, {3});
    const Tensor deep = y * y;
    const Tensor h = deep * x;
    const Tensor sums = sum(h * h);
    const Tensor gradient = run_grad({sums}, {h})[0];
    EXPECT_EQ(gradient.to_vector(), (Values{2, 16, 54}));
    run_backward(sum(deep));  // was not walked, so nothing of it was freed
    EXPECT_EQ(y.grad().to_vector(), (Values{2, 4, 6}));
    EXPECT_TRUE(says(refusal_of([&] { run_grad({sum(x * x)}, {y}); }),
                     "was not used to compute the outputs"));
    EXPECT_FALSE(run_grad({sum(x * x)}, {y}, {}, {.allow_unused = true})[0].defined());
    const Tensor one = counting(world, {3});
    EXPECT_EQ(run_grad({x * x}, {x}, {one})[0].to_vector(), (Values{2, 8, 18}));
    co_return;
  });
}

TEST(Grad, OfAGradient) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    DTensor x = distribute_tensor(counting(world, {4}), mesh, Shard(0));
    x.set_requires_grad(true);
    const DTensor cubes = sum(x * x * x);
    const std::vector<Tensor> outputs{cubes}, inputs{x}, no_seeds;
    const std::vector<Tensor> first =
        co_await grad(outputs, inputs, no_seeds, GradOptions{.create_graph = true});
    EXPECT_EQ(full_tensor(first[0].detach()).to_vector(), (Values{3, 12, 27, 48}));
    const std::vector<Tensor> slope{sum(first[0])};
    const std::vector<Tensor> second = co_await grad(slope, inputs);
    EXPECT_EQ(full_tensor(second[0]).to_vector(), (Values{6, 12, 18, 24}));
    EXPECT_FALSE(x.grad().defined());
  });
}

TEST(Backward, TakesAGradientInTheDtypeOfTheLoss) {
  on_ranks(1, [](World& world) -> Task<void> {
    for (const DType given : {DType::F64, DType::BF16, DType::I64}) {
      Tensor x = counting(world, {2}, DType::F32);
      x.set_requires_grad(true);
      run_backward(x + x, ones(world.device(), {2}, given));
      EXPECT_EQ(x.grad().dtype(), DType::F32);
      EXPECT_EQ(x.grad().to_vector(), (Values{2, 2}));
    }
    co_return;
  });
}

TEST(GradMode, MayBeSetForARestOfABranch) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = leaf_of(world, {2});
    set_grad_enabled(false);
    EXPECT_FALSE(grad_enabled());
    EXPECT_FALSE((x * 2.0).requires_grad());
    { const NoGradGuard inner; }
    EXPECT_FALSE(grad_enabled());
    set_grad_enabled(true);
    EXPECT_TRUE((x * 2.0).requires_grad());
    co_return;
  });
}

Tensor squared(const Tensor& x) { return x * x; }

// The gradient of sum(c g), g the gradient of `f`, against differences of g.
void expect_second_gradient(World& world, const Tensor& at,
                            const std::function<Tensor(const Tensor&)>& f) {
  const auto slope = [&](const Tensor& where, bool recorded) {
    Tensor x = where.detach();
    x.set_requires_grad(true);
    const Tensor g = run_grad({f(x)}, {x}, {}, {.create_graph = recorded})[0];
    return std::pair(x, sum(g * sin(counting(world, at.shape()))));
  };
  const auto [x, value] = slope(at, true);
  const Values got = run_grad({value}, {x})[0].to_vector();
  Values values = at.to_vector();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double middle = values[i], step = 1e-5;
    double ends[2];
    for (const int end : {0, 1}) {
      values[i] = middle + (end == 0 ? -step : step);
      const Tensor moved = Tensor::from_values(world.device(), at.shape(), DType::F64, values);
      ends[end] = slope(moved, false).second.item();
    }
    values[i] = middle;
    EXPECT_NEAR(got[i], (ends[1] - ends[0]) / (2 * step), 1e-5) << i;
  }
}

TEST(GradMode, AViewThatChangesNothingHasNoGradientOffTheTape) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor x = leaf_of(world, {2, 3});
    DTensor d = distribute_tensor(counting(world, {4}), mesh, Shard(0));
    d.set_requires_grad(true);
    const NoGradGuard off;
    for (const Tensor& y : {slice(x, 1, 0, 3), squeeze(x), squeeze(x, 0), expand(x, {2, 3}),
                            slice(d, 0, 0, 4), redistribute(d, Shard(0)).tensor()}) {
      EXPECT_FALSE(y.requires_grad());
      EXPECT_EQ(y.storage()->buffer, (y.is_distributed() ? d : x).storage()->buffer);
    }
    co_return;
  });
}

// Off the tape a handle is memory, whatever became of it on the tape.
TEST(GradMode, AViewThatChangesNothingOfAHandleThatIsBehindIsOneOffTheTape) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = leaf_of(world, {2, 3});
    const Tensor h = x * 1.0, d = h.detach();
    mul_(h, 2.0);
    const NoGradGuard off;
    EXPECT_EQ(slice(d, 0, 0, 2).to_vector(), h.to_vector());
    EXPECT_EQ(slice(d, 0, 0, 1).to_vector(), slice(h, 0, 0, 1).to_vector());
    co_return;
  });
}

TEST(GradMode, AViewMadeOffTheTapeThatBecameALeafHasViewsOfItsOwn) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor base = counting(world, {2, 3}), y = leaf_of(world, {3});
    Tensor v;
    {
      const NoGradGuard off;
      v = select(base, 0, 0);
    }
    v.requires_grad_();
    v.requires_grad_(false);
    copy_(v, y);
    const Tensor w = view(v, {3, 1});
    mul_(v, 2.0);
    run_backward(sum(w));
    EXPECT_EQ(y.grad().to_vector(), (Values{2, 2, 2}));
    co_return;
  });
}

TEST(Twice, SoftmaxAndTheLossesAreDifferentiable) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor at = sin(counting(world, {3, 4}));
    const Tensor factor = cos(counting(world, {3, 4}));
    const Tensor targets = Tensor::from_values(world.device(), {3}, DType::I64, Values{1, 3, 0});
    const Tensor weight = counting(world, {4}, DType::F64, 0.5);
    const std::function<Tensor(const Tensor&)> functions[] = {
        [&](const Tensor& x) { return sum(squared(softmax(x, 1)) * factor); },
        [&](const Tensor& x) { return sum(squared(log_softmax(x, 0)) * factor); },
        [&](const Tensor& x) { return cross_entropy(x, targets); },
        [&](const Tensor& x) {
          return sum(squared(cross_entropy_rows(x, targets, Reduction::None, 3, 0.1)));
        },
        [&](const Tensor& x) { return squared(cross_entropy(x, targets, Reduction::Sum)); },
        [&](const Tensor& x) {
          return squared(cross_entropy(x, targets, Reduction::Mean, 0, 0.1, weight));
        },
        [&](const Tensor& x) { return squared(nll_loss(squared(x), targets)); },
    };
    for (const auto& f : functions) expect_second_gradient(world, at, f);
    co_return;
  });
}

TEST(Twice, MeanSquaresAndFunctionsOfOneElementAreDifferentiable) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor at = sin(counting(world, {3, 4})) + 1.5;
    const Tensor target = cos(counting(world, {3, 4}));
    const std::function<Tensor(const Tensor&)> functions[] = {
        [&](const Tensor& x) { return mse_loss(x * x, target); },
        [](const Tensor& x) { return sum(x * exp(x)); },
        [](const Tensor& x) { return sum(x * tanh(x)); },
        [](const Tensor& x) { return sum(x * sigmoid(x)); },
        [](const Tensor& x) { return sum(sin(x) * cos(x)); },
        [](const Tensor& x) { return sum(x * log(x)); },
        [](const Tensor& x) { return sum(x * log1p(x) + expm1(x)); },
        [](const Tensor& x) { return sum(sqrt(x) + reciprocal(x)); },
        [](const Tensor& x) { return sum(x * relu(x) * abs(x) * leaky_relu(x, 0.1)); },
    };
    for (const auto& f : functions) expect_second_gradient(world, at, f);
    co_return;
  });
}

TEST(Twice, SoftmaxAndCrossEntropyOfCutTensors) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor at = sin(counting(world, {4, 6}));
    const Tensor targets = Tensor::from_values(world.device(), {4}, DType::I64, Values{1, 3, 0, 5});
    Tensor plain = at.detach();
    plain.set_requires_grad(true);
    const auto second = [&](const Tensor& x, const Tensor& target) {
      const Tensor loss = cross_entropy(x * softmax(x, 1), target);
      const Tensor g = run_grad({loss}, {x}, {}, {.create_graph = true})[0];
      return run_grad({sum(g * g)}, {x})[0];
    };
    const Tensor want = second(plain, targets);
    for (const int dim : {0, 1}) {
      DTensor x = distribute_tensor(at, mesh, Shard(dim));
      x.set_requires_grad(true);
      const DTensor target = distribute_tensor(targets, mesh, Replicate());
      const Tensor difference = full_tensor(second(x, target)) - want;
      EXPECT_LT(amax(abs(difference), Dims()).item(), 1e-12);
    }
    co_return;
  });
}

TEST(Grad, TakesListsInsideAnAwait) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = leaf_of(world, {3}), y = leaf_of(world, {3});
    const std::vector<Tensor> both = co_await grad({sum(x * y), sum(x)}, {x, y});
    EXPECT_EQ(both[0].to_vector(), (Values{2, 3, 4}));
    EXPECT_EQ(both[1].to_vector(), (Values{1, 2, 3}));
    const std::vector<Tensor> one = co_await grad({x * y}, {x}, {ones_like(x)});
    EXPECT_EQ(one[0].to_vector(), (Values{1, 2, 3}));
    const std::vector<Tensor> inputs = {x, y};
    const GradOptions options = {.allow_unused = true};
    const std::vector<Tensor> named = co_await grad({sum(x)}, inputs, {}, options);
    EXPECT_FALSE(named[1].defined());
    co_await backward(sum(x * y));
    co_await arrival_of({x.grad(), y.grad()});
    co_await reduce_gradients({x, y});
    EXPECT_DOUBLE_EQ((co_await clip_grad_norm({x, y}, 1e9)).item(), std::sqrt(28.0));
  });
}

}  // namespace
}  // namespace coshard::testing
