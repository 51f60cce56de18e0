// Modules and optimizers that are put together wrongly: an error, and nothing half done.
#include <coshard/styles/verify_replicated.h>
#include "styles/module_change.h"
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

// Runs `inner`, which it registers or not.
struct Wrapper : Module {
  Wrapper(Module& inner, bool registers) : inner(inner) {
    if (registers) register_module("inner", inner);
  }
  Task<Tensor> run(Tensor x) override {
    Task<Tensor> forward = inner.forward(std::move(x));
    co_return co_await std::move(forward);
  }
  Module& inner;
};

TEST(Parallelize, TheStepOfAnOptimizerOverReplacedParametersIsAnError) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    Mlp mlp(world);
    SGD made_before(mlp.parameters(), {.lr = 0.1});
    ParallelPlan plan;
    plan["net1"] = ColwiseParallel{};
    co_await parallelize_module(mlp, mesh, plan);
    const std::string text = co_await error_of(made_before.step());
    EXPECT_CONTAINS(text, "was replaced in its module by parallelize_module");
    SGD made_after(mlp.parameters(), {.lr = 0.1});
    co_await made_after.step();
    nn::Linear linear(4, 4, world);
    SGD other(linear.parameters(), {.lr = 0.1});
    distribute_module(linear, mesh);
    const std::string by_hand = co_await error_of(other.step());
    EXPECT_CONTAINS(by_hand, "was replaced in its module by distribute_module");
  });
}

TEST(Parallelize, AGradientIntoAReplacedParameterIsAnError) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    nn::Linear linear(4, 8, world, kF64);  // a weight and a bias that do not broadcast
    Task<Tensor> forward = linear.forward(random(world, Shape{2, 4}));
    const Tensor y = co_await std::move(forward);
    const Tensor loss = sum(y);
    co_await parallelize_module(linear, mesh, ColwiseParallel{});
    const std::string text = co_await error_of(backward(loss));
    EXPECT_CONTAINS(text, "reaches a parameter that parallelize_module has replaced");
  });
}

TEST(Parallelize, AStyleIsNotAppliedTwice) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    nn::Linear linear(4, 4, world);
    co_await parallelize_module(linear, mesh, ColwiseParallel{});
    const std::string again =
        co_await error_of(parallelize_module(linear, mesh, ColwiseParallel{}));
    EXPECT_CONTAINS(again, "Linear '' was already given the style ColwiseParallel");
    const std::string other =
        co_await error_of(parallelize_module(linear, mesh, RowwiseParallel{}));
    EXPECT_CONTAINS(other, "was already parallelized");
    nn::Linear by_hand(4, 4, world);
    distribute_module(by_hand, mesh);
    EXPECT_THROW(distribute_module(by_hand, mesh), Error);
    nn::Linear norm(4, 4, world);
    const PrepareModuleInput in{.input_layouts = Replicate(), .desired_input_layouts = Replicate()};
    co_await parallelize_module(norm, mesh, in);
    const PrepareModuleInputOutput both{.input_layouts = Replicate(),
                                        .desired_input_layouts = Replicate(),
                                        .output_layouts = Replicate(),
                                        .desired_output_layouts = Replicate()};
    const std::string twice = co_await error_of(parallelize_module(norm, mesh, both));
    EXPECT_CONTAINS(twice, "was already prepared for its inputs");
  });
}

TEST(Parallelize, EmptyStylesAndUndefinedMeshesThrow) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::Linear linear(4, 4, world);
    const DeviceMesh none;
    EXPECT_THROW(Style().apply(linear, line(world), {}), Error);
    EXPECT_THROW(distribute_module(linear, none), Error);
    EXPECT_THROW(static_cast<void>(none.size()), Error);
    EXPECT_THROW(static_cast<void>(none["tp"]), Error);
    EXPECT_THROW(static_cast<void>(none.communicator(0)), Error);
    EXPECT_THROW(static_cast<void>(none.flatten()), Error);
    const std::string text = co_await error_of(parallelize_module(linear, none, ColwiseParallel{}));
    EXPECT_CONTAINS(text, "the mesh is undefined");
  });
}

TEST(Module, ThatIsNotRegisteredWhereItRunsIsAnErrorThatNamesBoth) {
  on_ranks(1, [](World& world) -> Task<void> {
    Mlp mlp(world, 4, 4, 4);
    Wrapper forgets(mlp, false), outer(forgets, true);
    const Tensor x = random(world, Shape{2, 4});
    const std::string text = co_await error_of(discard(outer.forward(x)));
    EXPECT_CONTAINS(text, "Mlp '' runs inside Wrapper '', which has not registered it");
    mlp.add_post_hook([](Module&, Outputs&) {});  // another way into the module
    const std::string hooked = co_await error_of(discard(outer.forward(x)));
    EXPECT_CONTAINS(hooked, "Mlp '' runs inside Wrapper ''");
    Task<Tensor> alone = mlp.forward(x);  // a root
    co_await discard(std::move(alone));
    const NoGradGuard off;
    co_await discard(outer.forward(x));
  });
}

// The parent that a shared module knows is the last one that registered it.
TEST(Module, ThatIsSharedMayRunBelowEachOfItsParents) {
  on_ranks(1, [](World& world) -> Task<void> {
    auto shared = std::make_shared<nn::Linear>(4, 4, world, kF64);
    Wrapper first(*shared, true), second(*shared, true);
    const Tensor x = random(world, Shape{2, 4});
    co_await discard(first.forward(x));
    co_await discard(second.forward(x));
  });
}

TEST(Module, ThatIsFrozenMayRunUnregistered) {
  on_ranks(1, [](World& world) -> Task<void> {
    Mlp teacher(world, 4, 4, 4);
    for (Tensor p : teacher.parameters()) p.set_requires_grad(false);
    Wrapper student(teacher, false);
    const Tensor x = random(world, Shape{2, 4});
    co_await discard(student.forward(x));
  });
}

TEST(Module, AClassWithinACoroutineHasItsName) {
  on_ranks(1, [](World&) -> Task<void> {
    struct Local : Module {};
    Local local;
    EXPECT_EQ(local.type_name(), "Local");
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing
