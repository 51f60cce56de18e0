// Which line errors name of collectives that modules and styles issue.
#include "tests/dtensor/user_lines.h"
#include "tests/styles/support.h"

namespace coshard::user_lines {
namespace {
using testing::integers;
using testing::kF64;
using testing::Mlp;
using testing::random;

constexpr ParallelizeOptions kOwnData{.src_data_rank = std::nullopt};

ParallelPlan over_rows_of_net2() {
  ParallelPlan plan;
  plan["net1"] = ColwiseParallel{};
  plan["net2"] = RowwiseParallel{};
  return plan;
}

Task<void> library_module(World& world, DeviceMesh mesh, Turn turn) {
  nn::Linear linear(16, 16, world, kF64);
  co_await parallelize_module(linear, mesh, RowwiseParallel{}, kOwnData);
  const Tensor x = random(world, {8, 8});
  turn.line(__LINE__ + 1);
  Task<Tensor> forward = linear.forward(x);
  co_await std::move(forward);
}
Task<void> module_called(World& world, DeviceMesh mesh, Turn turn) {
  nn::Linear linear(16, 16, world, kF64);
  co_await parallelize_module(linear, mesh, RowwiseParallel{}, kOwnData);
  Inputs inputs(random(world, {8, 8}));
  turn.line(__LINE__ + 1);
  Task<Outputs> call = linear.call(inputs);
  co_await std::move(call);
}
Task<void> library_module_in_two_levels(World& world, DeviceMesh mesh, Turn turn) {
  nn::MLP mlp({.dim = 16, .ffn = 32, .dtype = DType::F64}, world);
  ParallelPlan plan;
  plan["w1"] = ColwiseParallel{};
  plan["w3"] = ColwiseParallel{};
  plan["w2"] = RowwiseParallel{};
  co_await parallelize_module(mlp, mesh, plan, kOwnData);
  const Tensor x = random(world, {8, 16});
  turn.line(__LINE__ + 1);
  Task<Tensor> forward = mlp.forward(x);
  co_await std::move(forward);
}
Task<void> recomputed(World& world, DeviceMesh mesh, Turn turn) {
  nn::Linear linear(16, 16, world, kF64);
  co_await parallelize_module(linear, mesh, RowwiseParallel{}, kOwnData);
  linear.set_recompute();
  const Tensor x = random(world, {8, 8});
  turn.line(__LINE__ + 1);
  Task<Tensor> forward = linear.forward(x);
  co_await std::move(forward);
}
Task<void> walked_back(World& world, DeviceMesh mesh, Turn turn) {
  Mlp mlp(world);
  co_await parallelize_module(mlp, mesh, over_rows_of_net2(), kOwnData);
  Tensor x = random(world, {8, 10});
  x.set_requires_grad(true);
  Task<Tensor> forward = mlp.forward(x);
  const Tensor y = co_await std::move(forward);
  const Tensor loss = sum(square(y));
  turn.line(__LINE__ + 1);
  Task<void> walk = backward(loss);
  co_await std::move(walk);
  x.grad().wait();
}
Task<void> cut_from_rank_0(World& world, DeviceMesh mesh, Turn turn) {
  nn::Linear linear(16, 16, world, kF64);
  turn.line(__LINE__ + 1);
  Task<void> cut = parallelize_module(linear, mesh, RowwiseParallel{});
  co_await std::move(cut);
}
Task<void> replicated_from_rank_0(World& world, DeviceMesh mesh, Turn turn) {
  nn::Linear linear(16, 16, world, kF64);
  turn.line(__LINE__ + 1);
  distribute_module(linear, mesh);
  co_return;
}
Task<void> loss_of_cut_classes(World& world, DeviceMesh mesh, Turn turn) {
  const Tensor targets = integers(world, {4}, 8);
  const DTensor logits = from_local(random(world, {4, 4}), mesh, Shard(1));
  turn.line(__LINE__ + 1);
  Task<Tensor> loss = loss_parallel_cross_entropy(logits, targets);
  co_await std::move(loss);
}

TEST(UserLinesOfModules, AreThoseThatCallTheLibrary) {
  for (const Asks asks :
       {library_module, module_called, library_module_in_two_levels, recomputed, walked_back,
        cut_from_rank_0, replicated_from_rank_0, loss_of_cut_classes})
    expect_both_lines(asks);
}

// The user's own module: of nested calls the innermost line of the user's counts.
struct Gathers : Module {
  Task<Tensor> run(Tensor x) override {
    turn.line(__LINE__ + 1);
    const Redistribution whole = x.redistribute(Replicate());
    co_return co_await whole;
  }
  Turn turn{};
};
Task<void> own_module(World& world, DeviceMesh mesh, Turn turn) {
  Gathers module;
  module.turn = turn;
  const DTensor x = from_local(random(world, {4, 4}), mesh, Shard(0));
  Task<Tensor> forward = module.forward(x);
  co_await std::move(forward);
}
// A module of the library that the user's module calls.
struct CallsLinear : Module {
  CallsLinear(World& world, Turn told) : linear(16, 16, world, kF64), turn(told) {
    register_module("linear", linear);
  }
  Task<Tensor> run(Tensor x) override {
    turn.line(__LINE__ + 1);
    Task<Tensor> y = linear.forward(std::move(x));
    co_return co_await std::move(y);
  }
  nn::Linear linear;
  Turn turn;
};
Task<void> library_module_in_own(World& world, DeviceMesh mesh, Turn turn) {
  CallsLinear module(world, turn);
  ParallelPlan plan;
  plan["linear"] = RowwiseParallel{};
  co_await parallelize_module(module, mesh, plan, kOwnData);
  const Tensor x = random(world, {8, 8});
  Task<Tensor> forward = module.forward(x);
  co_await std::move(forward);
}

TEST(UserLinesOfModules, AreTheInnermostOfTheUsers) {
  for (const Asks asks : {own_module, library_module_in_own}) expect_both_lines(asks);
}

// After its own call has ended, the call around it counts again.
struct ThenTheLibrary : Module {
  explicit ThenTheLibrary(World& world) : linear(16, 16, world, kF64) {
    register_module("linear", linear);
  }
  Task<Tensor> run(Tensor x) override { return linear.forward(std::move(x), CallSite()); }
  nn::Linear linear;
};
Task<void> around(World& world, DeviceMesh mesh, Turn turn) {
  ThenTheLibrary module(world);
  ParallelPlan plan;
  plan["linear"] = RowwiseParallel{};
  co_await parallelize_module(module, mesh, plan, kOwnData);
  const Tensor x = random(world, {8, 8});
  turn.line(__LINE__ + 1);
  Task<Tensor> forward = module.forward(x);
  co_await std::move(forward);
}

TEST(UserLinesOfModules, AreOfTheCallAroundWhereTheInnerHasNone) { expect_both_lines(around); }

Task<void> alone_in_a_module(World& world) {
  const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
  CallsLinear module(world, {});
  int line = 0;
  module.turn.asked = &line;
  ParallelPlan plan;
  plan["linear"] = RowwiseParallel{};
  co_await parallelize_module(module, mesh, plan, kOwnData);
  if (world.rank() == 1) co_return;
  const Tensor x = random(world, {8, 8});
  Task<Tensor> forward = module.forward(x);
  co_await std::move(forward);
}

TEST(UserLinesOfModules, AreToldWithTheModule) {
  const std::vector<testing::End> ends =
      testing::ends_of(testing::quick_options(2), alone_in_a_module);
  EXPECT_TRUE(ends[0].names(", module linear")) << ends[0];
}

}  // namespace
}  // namespace coshard::user_lines
