#include <coshard/styles/recompute.h>

#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

// Two MLPs, one after the other.
struct Stack : Module {
  explicit Stack(World& world) : low(world), high(world) {
    register_module("low", low);
    register_module("high", high);
  }
  Task<Tensor> run(Tensor x) override {
    Tensor between = co_await low.forward(std::move(x));
    co_return co_await high.forward(between);
  }
  Mlp low, high;
};

// Remembers the activation between its layers.
struct Watched : Mlp {
  using Mlp::Mlp;
  Task<Tensor> run(Tensor x) override {
    Tensor hidden = co_await net1.forward(std::move(x));
    const Tensor active = relu(hidden);
    activation = active.storage();
    co_return co_await net2.forward(active);
  }
  std::weak_ptr<Storage> activation;
};

struct Dropped : Module {
  Dropped() { register_module("drop", drop); }
  Task<Tensor> run(Tensor x) override {
    Tensor y = co_await drop.forward(x);
    co_return mul(y, x);
  }
  nn::Dropout drop{0.5};
};

// Gives way to siblings between two dropouts.
struct Slow : Module {
  Task<Tensor> run(Tensor x) override {
    const Tensor once = dropout(x, 0.5);
    co_await yield();
    co_return dropout(once, 0.5);
  }
};

void expect_equal_gradients(Module& got, Module& want) {
  const std::vector<NamedParameter> a = got.named_parameters(), b = want.named_parameters();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) expect_close(a[i].slot->grad(), b[i].slot->grad());
}

ParallelPlan mlp_plan(const std::string& prefix, bool sequence) {
  ParallelPlan plan;
  ColwiseParallel first;
  RowwiseParallel second;
  if (sequence) first.input_layouts = second.output_layouts = Shard(0);
  plan[prefix + "net1"] = first;
  plan[prefix + "net2"] = second;
  return plan;
}

TEST(Recompute, GivesTheSameGradientsAndDoesNotRepeatTheLastAllReduce) {
  on_ranks(4, [](World& world) -> Task<void> {
    auto [plain, mlp] = twins<Mlp>(world);
    const DeviceMesh mesh = line(world);
    ParallelPlan plan = mlp_plan("", false);
    co_await parallelize_module(*mlp, mesh, plan);
    mlp->set_recompute();
    const Tensor x = random(world, Shape{8, 10});
    const Counted got = co_await run_counted(world, *mlp, x.detach());
    EXPECT_EQ(got.forward, Issued{.all_reduce = 1});
    EXPECT_EQ(got.backward, Issued{.all_reduce = 1});
    const Counted want = co_await run_counted(world, *plain, x.detach());
    expect_close(got.output, want.output);
    expect_close(got.input_grad, want.input_grad);
    expect_equal_gradients(*mlp, *plain);
  });
}

TEST(Recompute, RepeatsTheGatherOfTheInputOfASequenceParallelMlp) {
  on_ranks(4, [](World& world) -> Task<void> {
    auto [plain, mlp] = twins<Mlp>(world);
    const DeviceMesh mesh = line(world);
    ParallelPlan plan = mlp_plan("", true);
    co_await parallelize_module(*mlp, mesh, plan);
    const Tensor x = random(world, Shape{8, 10});
    CountingObserver counter(world);
    Tensor own = part(world, x, 0);
    own.set_requires_grad(true);
    const Tensor y = co_await recompute(*mlp, own);
    EXPECT_EQ(take(counter), (Issued{.all_gather = 1, .reduce_scatter = 1}));
    const Tensor loss = sum(mul(y, y));
    co_await backward(loss);
    EXPECT_EQ(take(counter), (Issued{.all_gather = 2, .reduce_scatter = 1}));
    const Counted want = co_await run_counted(world, *plain, x.detach());
    expect_close(from_local(own.grad(), mesh, Shard(0)), want.input_grad);
    expect_equal_gradients(*mlp, *plain);
  });
}

TEST(Recompute, MayBeNested) {
  on_ranks(2, [](World& world) -> Task<void> {
    auto [plain, stack] = twins<Stack>(world);
    const DeviceMesh mesh = line(world);
    for (const char* name : {"low.", "high."}) {
      ParallelPlan plan = mlp_plan(name, false);
      co_await parallelize_module(*stack, mesh, plan);
    }
    stack->low.set_recompute();
    stack->high.set_recompute();
    stack->set_recompute();
    const Tensor x = random(world, Shape{4, 10});
    const Counted got = co_await run_counted(world, *stack, x.detach());
    EXPECT_EQ(got.forward, Issued{.all_reduce = 2});
    // two of gradients, and the output of `low`, which `high` reads again
    EXPECT_EQ(got.backward, Issued{.all_reduce = 3});
    const Counted want = co_await run_counted(world, *plain, x.detach());
    expect_close(got.input_grad, want.input_grad);
    expect_equal_gradients(*stack, *plain);
  });
}

TEST(Recompute, KeepsNoActivation) {
  on_ranks(1, [](World& world) -> Task<void> {
    Watched kept(world), dropped(world);
    const Tensor x = random(world, Shape{4, 10});
    const Tensor y = co_await kept.forward(x);
    const Tensor z = co_await recompute(dropped, x);
    EXPECT_FALSE(kept.activation.expired());
    EXPECT_TRUE(dropped.activation.expired());
    EXPECT_TRUE(z.requires_grad());
  });
}

TEST(Recompute, DropsTheSameElementsAgain) {
  on_ranks(2, [](World& world) -> Task<void> {
    Dropped module;
    Tensor x = random(world, Shape{64});
    x.set_requires_grad(true);
    const Tensor y = co_await recompute(module, x);
    const Tensor later = rand(world.device(), Shape{3});
    const Tensor loss = sum(y);
    co_await backward(loss);
    // y = m x^2 and dy/dx = 2 m x
    expect_close(mul(x.grad(), x.detach()), mul(y.detach(), 2.0));
    const RandomState state = random_state();
    const Tensor next = rand(world.device(), Shape{3});
    EXPECT_EQ(random_state().next_stream, state.next_stream + 1);
  });
}

TEST(Recompute, DrawsTheSameNumbersAgainWhateverSiblingsDraw) {
  on_ranks(2, [](World& world) -> Task<void> {
    Slow module;
    Tensor x = random(world, Shape{64});
    x.set_requires_grad(true);
    Task<Tensor> first = recompute(module, x), second = recompute(module, x);
    Task<std::tuple<Tensor, Tensor>> both = when_all(std::move(first), std::move(second));
    const std::tuple<Tensor, Tensor> outputs = co_await std::move(both);
    const Tensor y = std::get<0>(outputs), other = std::get<1>(outputs);
    EXPECT_NE(y.to_vector(), other.to_vector());
    const Tensor loss = sum(y);
    co_await backward(loss);
    expect_close(mul(x.grad(), x.detach()), y.detach());  // a dropout is a factor
  });
}

// Suspends more often than an executor lets a lone task run on.
struct Patient : Module {
  Task<Tensor> run(Tensor x) override {
    for (int i = 0; i < 300; ++i) co_await yield();
    co_return mul(x, x);
  }
};

TEST(Recompute, RunsAModuleAgainThatAwaitsOtherThings) {
  on_ranks(2, [](World& world) -> Task<void> {
    Patient module;
    Tensor x = random(world, Shape{5});
    x.set_requires_grad(true);
    Task<Tensor> first = recompute(module, x), second = recompute(module, x);
    Task<std::tuple<Tensor, Tensor>> both = when_all(std::move(first), std::move(second));
    const std::tuple<Tensor, Tensor> outputs = co_await std::move(both);
    const Tensor loss = sum(add(std::get<0>(outputs), std::get<1>(outputs)));
    co_await backward(loss);
    expect_close(x.grad(), mul(x.detach(), 4.0));
  });
}

TEST(Recompute, IsAPlainCallWhereNothingWantsAGradient) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::Identity identity;
    identity.set_recompute();
    const Tensor x = random(world, Shape{3});
    const Tensor y = co_await identity.forward(x);
    EXPECT_FALSE(y.requires_grad());
    expect_close(y, x);
  });
}

struct Outside : Module {
  explicit Outside(World& world) : weight(counting(world, {2})) {
    weight.set_requires_grad(true);
    register_parameter("weight", weight);
  }
  Task<Tensor> run(Tensor x) override { co_return x* weight + seen; }
  Tensor weight, seen;
};

// A view from outside that catches up while the module runs is still from outside.
TEST(Recompute, LeadsGradToWhatItReadsThroughAViewThatIsBehind) {
  on_ranks(1, [](World& world) -> Task<void> {
    Outside module(world);
    Tensor w = counting(world, {2, 2});
    w.set_requires_grad(true);
    const Tensor h = w * 1.0;
    module.seen = select(h, 0, 0);
    mul_(h, 5.0);
    const Tensor y = co_await recompute(module, counting(world, {2}));
    std::vector<Tensor> outputs{sum(y)}, inputs{w};
    const std::vector<Tensor> gradients = co_await grad(std::move(outputs), std::move(inputs));
    EXPECT_EQ(gradients[0].to_vector(), (std::vector<double>{5, 5, 0, 0}));
  });
}

}  // namespace
}  // namespace coshard::testing
