// The tape through recomputation and the parallel loss.
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

// Reads a tensor that is neither input nor parameter.
struct Reader : Module {
  explicit Reader(Tensor read) : read(std::move(read)) {}
  Task<Tensor> run(Tensor x) override {
    Tensor y;
    {
      const NoGradGuard no_grad;
      y = add(read, 1.0);  // no record knows of it
    }
    co_return mul(x, y);
  }
  Tensor read;
};

Task<std::string> backward_refusal(Tensor loss) {
  std::string text;
  try {
    co_await backward(loss);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::BadInput) text = error.what();
  }
  co_return text;
}

TEST(RecomputeSaves, WhatItsFirstRunReadMayNotChange) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor outside = random(world, Shape{4, 10});
    Reader reader(outside);
    Mlp mlp(world);
    Tensor x = random(world, Shape{4, 10});
    x.set_requires_grad(true);
    const Tensor parameter = mlp.parameters()[0];
    for (int change = 0; change < 4; ++change) {
      const Tensor input = mul(x, 1.0);
      const Tensor y = co_await recompute(reader, input);
      const Tensor z = co_await recompute(mlp, input);
      const Tensor loss = sum(add(mul(y, y), z));
      if (change == 1) add_(outside, 1.0);
      if (change == 2) add_(parameter.detach(), 1.0);
      if (change == 3) add_(input.detach(), 1.0);
      const std::string text = co_await backward_refusal(loss);
      EXPECT_EQ(text.empty(), change == 0) << text;
      if (change != 0) {
        EXPECT_NE(text.find("recompute: "), std::string::npos) << text;
        EXPECT_NE(text.find("changed in place"), std::string::npos) << text;
      }
    }
  });
}

TEST(RecomputeSaves, AnOptimizersStepBetweenIsSeen) {
  on_ranks(1, [](World& world) -> Task<void> {
    Mlp mlp(world);
    const Tensor x = random(world, Shape{4, 10});
    const Tensor first = co_await recompute(mlp, x);
    const Tensor second = co_await recompute(mlp, x);
    const Tensor loss = sum(mul(first, first)), late = sum(mul(second, second));
    AdamW optimizer(mlp.parameters());
    co_await backward(loss);
    co_await optimizer.step();
    const std::string text = co_await backward_refusal(late);
    EXPECT_NE(text.find("changed in place"), std::string::npos) << text;
  });
}

// Closes over a tensor that the tape made.
struct Closed : Module {
  Task<Tensor> run(Tensor x) override { co_return mul(x, shared); }
  Tensor shared;
};

TEST(RecomputeSaves, AParameterThatTheUserReplacesBetweenIsSeen) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::Linear linear(4, 4, world);
    linear.set_recompute();
    Task<Tensor> forward = linear.forward(ones(world, {2, 4}));
    const Tensor y = co_await std::move(forward);
    const Tensor before = linear.weight;
    linear.weight = ones(world, {4, 4}, DType::F32, true);
    const std::string text = co_await backward_refusal(sum(y));
    EXPECT_CONTAINS(text, "recompute: Linear '': its parameter 'weight' was replaced since");
    EXPECT_FALSE(linear.weight.grad().defined());
    linear.weight = before;
    co_await backward(sum(y));
    EXPECT_TRUE(before.grad().defined());
  });
}

TEST(RecomputeDelivers, GradientsOfWhatItReadsFromOutsideToTheOuterWalk) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor w = random(world, Shape{5});
    w.set_requires_grad(true);
    Tensor x = random(world, Shape{5});
    Closed closed;
    closed.shared = mul(w, w);
    int calls = 0;
    register_hook(closed.shared, [&](const Tensor&) {
      ++calls;
      return Tensor();
    });
    const Tensor y = co_await recompute(closed, x);  // nothing that it is given wants a gradient
    x.set_requires_grad(true);
    const Tensor z = co_await recompute(closed, x);
    const Tensor loss = sum(add(add(y, z), closed.shared));
    co_await backward(loss);
    EXPECT_EQ(calls, 1);
    expect_close(w.grad(), mul(mul(w.detach(), 2.0), add(mul(x.detach(), 2.0), 1.0)));
    expect_close(x.grad(), square(w.detach()));
  });
}

TEST(RecomputeDelivers, ToGradAndHooksOfTheOuterWalk) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    auto [plain, mlp] = twins<Mlp>(world);
    ParallelPlan plan;
    plan["net1"] = ColwiseParallel();
    plan["net2"] = RowwiseParallel();
    co_await parallelize_module(*mlp, mesh, plan);
    const Tensor x = random(world, Shape{4, 10});
    const Tensor weight = mlp->parameters()[0];
    const Tensor y = co_await recompute(*mlp, x);
    const Tensor again = co_await recompute(*mlp, x);
    const std::vector<Tensor> outputs{sum(mul(y, y))}, inputs{weight};
    const std::vector<Tensor> found = co_await grad(outputs, inputs);
    for (const Tensor& p : mlp->parameters()) EXPECT_FALSE(p.grad().defined());
    int calls = 0, sums = 0;
    register_hook(weight, [&](const Tensor&) {
      ++calls;
      return Tensor();
    });
    register_post_accumulate_grad_hook(weight, [&](const Tensor&) { ++sums; });
    const Tensor loss = add(sum(mul(again, again)), full_tensor(sum(weight)));
    co_await backward(loss);
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(sums, 1);
    const Tensor want = co_await plain->forward(x);
    co_await backward(sum(mul(want, want)));
    expect_close(found[0], plain->parameters()[0].grad());
  });
}

TEST(RecomputeRetains, WhatASecondBackwardNeeds) {
  on_ranks(1, [](World& world) -> Task<void> {
    Mlp mlp(world);
    Tensor x = random(world, Shape{4, 10});
    x.set_requires_grad(true);
    const Tensor loss = sum(co_await recompute(mlp, x));
    co_await backward(loss, BackwardOptions{.retain_graph = true});
    const Tensor once = x.grad();
    co_await backward(loss);
    expect_close(x.grad(), mul(once, 2.0));
    const std::string text = co_await backward_refusal(loss);
    EXPECT_NE(text.find("a second time"), std::string::npos) << text;
  });
}

TEST(LossParallelOnTheTape, RefusesChangedLogitsTargetsAndWeights) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    for (int change = 0; change < 4; ++change) {
      DTensor logits = distribute_tensor(random(world, Shape{6, 8}), mesh, Shard(1));
      logits.set_requires_grad(true);
      const Tensor targets = integers(world, Shape{6}, 8);
      const Tensor weight = add(rand(world.device(), Shape{8}, DType::F64), 0.5);
      const LossParallelOptions options{.label_smoothing = 0.1};
      const Tensor loss = co_await loss_parallel_cross_entropy(logits, targets, options, weight);
      if (change == 1) fill_(targets, 3);
      if (change == 2) add_(logits.detach(), 1.0);
      if (change == 3) add_(to_local(logits.detach()), 1.0);
      const std::string text = co_await backward_refusal(loss);
      EXPECT_EQ(text.empty(), change == 0) << text;
      if (change != 0) {
        EXPECT_NE(text.find("loss_parallel_cross_entropy: "), std::string::npos) << text;
        EXPECT_NE(text.find("changed in place"), std::string::npos) << text;
      }
    }
  });
}

TEST(LossParallelOnTheTape, IsTwiceDifferentiable) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor at = random(world, Shape{6, 8});
    const Tensor targets = integers(world, Shape{6}, 8);
    const Tensor weight = add(rand(world.device(), Shape{8}, DType::F64), 0.5);
    for (const Reduction reduction : {Reduction::None, Reduction::Mean, Reduction::Sum})
      for (const bool weighted : {false, true}) {
        const double smoothing = weighted ? 0.1 : 0.2;
        const Tensor weights = weighted ? weight : Tensor();
        const LossParallelOptions options{
            .reduction = reduction, .ignore_index = 2, .label_smoothing = smoothing};
        Tensor plain = at.detach();
        plain.set_requires_grad(true);
        const Tensor loss = cross_entropy(plain, targets, reduction, 2, smoothing, weights);
        const Tensor squares = sum(mul(loss, loss));
        const Tensor g = run_grad({squares}, {plain}, {}, {.create_graph = true})[0];
        const Tensor want = run_grad({sum(mul(g, g))}, {plain})[0];
        const Layout cuts[] = {Shard(1)};
        for (const Layout& cut : cuts) {
          DTensor x = distribute_tensor(at, mesh, cut);
          x.set_requires_grad(true);
          const Tensor cut_loss =
              co_await loss_parallel_cross_entropy(x, targets, options, weights);
          const std::vector<Tensor> outputs{sum(mul(cut_loss, cut_loss))}, inputs{x}, no_seeds;
          const std::vector<Tensor> first =
              co_await grad(outputs, inputs, no_seeds, GradOptions{.create_graph = true});
          const std::vector<Tensor> slopes{sum(mul(first[0], first[0]))};
          const std::vector<Tensor> second = co_await grad(slopes, inputs);
          expect_close(first[0].detach(), g.detach());
          expect_close(second[0], want);
        }
      }
  });
}

}  // namespace
}  // namespace coshard::testing
