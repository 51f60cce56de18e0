// Modules and optimizers that are put together wrongly: an error, and nothing half done.
#include <coshard/styles/verify_replicated.h>
#include "styles/module_change.h"
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

// Cuts a weight, draws, adds a hook, and fails.
struct Broken {
  void apply(Module& module, const DeviceMesh& mesh, const ParallelizeOptions&) const {
    Tensor& weight = module.parameter("weight");
    weight = distribute_tensor(weight, mesh, Shard(0));
    randn(weight.device(), {1});
    module.add_pre_hook([](Module&, Inputs&) { ADD_FAILURE() << "the hook is still there"; });
    fail(ErrorKind::BadInput, "this style is broken");
  }
  friend std::ostream& operator<<(std::ostream& out, const Broken&) { return out << "Broken"; }
};

std::vector<const void*> ids_of(Module& module) {
  std::vector<const void*> ids;
  for (const NamedParameter& p : module.named_slots()) ids.push_back(p.slot->id());
  return ids;
}

TEST(Parallelize, LeavesTheModuleAsItWasWhenAStyleFails) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    Mlp mlp(world, 8, 8, 8);
    mlp.net2.weight = mlp.net1.weight;  // tied
    const Tensor x = random(world, Shape{2, 8});
    Task<Tensor> before = mlp.forward(x);
    const Tensor want = co_await std::move(before);
    const std::vector<const void*> ids = ids_of(mlp);
    const RandomState random = random_state();
    ParallelPlan plan;
    plan["net1"] = ColwiseParallel{};
    plan["net2"] = Broken{};
    const std::string text = co_await error_of(parallelize_module(mlp, mesh, plan));
    EXPECT_CONTAINS(text, "this style is broken");
    EXPECT_EQ(ids_of(mlp), ids);
    EXPECT_TRUE(mlp.net1.weight.is_leaf() && mlp.net1.weight.requires_grad());
    EXPECT_EQ(random_state().next_stream, random.next_stream);
    Task<Tensor> after = mlp.forward(x);
    const Tensor got = co_await std::move(after);
    EXPECT_EQ(got.to_vector(), want.to_vector());
    ParallelPlan good;
    good["net1"] = NoParallel{};
    good["net2"] = NoParallel{};
    co_await parallelize_module(mlp, mesh, good);
    Task<Tensor> again = mlp.forward(x);
    const Tensor cut = co_await std::move(again);
    expect_close(cut, want);
  });
}

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
    EXPECT_CONTAINS(again, "Linear '' is given the style ColwiseParallel already");
    const std::string other =
        co_await error_of(parallelize_module(linear, mesh, RowwiseParallel{}));
    EXPECT_CONTAINS(other, "is parallelized already");
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
    EXPECT_CONTAINS(twice, "is prepared where it is called already");
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

TEST(Module, ThatIsNotRegisteredWhereItRunsIsAnErrorThatNamesBoth) {
  on_ranks(1, [](World& world) -> Task<void> {
    Mlp mlp(world, 4, 4, 4);
    Wrapper forgets(mlp, false), outer(forgets, true);
    const Tensor x = random(world, Shape{2, 4});
    const std::string text = co_await error_of(discard(outer.forward(x)));
    EXPECT_CONTAINS(text, "Mlp '' runs within Wrapper '', which does not have it registered");
    mlp.add_post_hook([](Module&, Outputs&) {});  // another way into the module
    const std::string hooked = co_await error_of(discard(outer.forward(x)));
    EXPECT_CONTAINS(hooked, "Mlp '' runs within Wrapper ''");
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

TEST(VerifyReplicated, NamesTheParameterOrGradientThatDiffers) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    Mlp mlp(world);
    ParallelPlan plan;
    plan["net1"] = ColwiseParallel{};
    plan["net2"] = NoParallel{};
    co_await parallelize_module(mlp, mesh, plan);
    co_await verify_replicated(mlp);
    mlp.net2.bias.set_grad(
        from_local(full(world.device(), {10}, world.rank(), DType::F64), mesh, Replicate()));
    const std::string text = co_await error_of(verify_replicated(mlp));
    EXPECT_CONTAINS(text, "replicas differ: the gradient of net2.bias f64[10] R on tp=2 of rank 1");
    {
      const NoGradGuard off;
      if (world.rank() == 1) fill_(to_local(mlp.net2.weight), 3);
    }
    const std::string value = co_await error_of(verify_replicated(mlp));
    EXPECT_CONTAINS(value, "replicas differ: net2.weight f64[10,16] R");
  });
}

}  // namespace
}  // namespace coshard::testing
