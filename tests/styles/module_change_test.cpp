// A change of a module is made whole or not at all.
#include "styles/module_change.h"
#include <coshard/styles/verify_replicated.h>
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

// Takes for the whole weight what is a shard of it, or the reverse.
struct Stretched {
  void apply(Module& module, const DeviceMesh& mesh, const ParallelizeOptions&) const {
    Tensor& weight = module.parameter("weight");
    weight = from_local(weight.detach(), mesh, Shard(0));
    weight.set_requires_grad(true);
  }
  friend std::ostream& operator<<(std::ostream& out, const Stretched&) {
    return out << "Stretched";
  }
};

TEST(Parallelize, RefusesAStyleThatChangesTheShapeOfAParameter) {
  on_ranks(2, [](World& world) -> Task<void> {
    Mlp mlp(world, 8, 6, 8);
    const std::vector<const void*> ids = ids_of(mlp);
    ParallelPlan plan;
    plan["net2"] = ColwiseParallel{};
    plan["net1"] = Stretched{};
    const std::string text = co_await error_of(parallelize_module(mlp, line(world), plan));
    EXPECT_CONTAINS(text, "parallelize_module: the style Stretched gives parameter 'net1.weight'");
    EXPECT_CONTAINS(text, "the shape [12,8], but it is [6,8]");
    EXPECT_EQ(ids_of(mlp), ids);
    std::string told;
    try {
      distribute_module(mlp, line(world),
                        [](const std::string& path, Module& m, const DeviceMesh& mesh) {
                          if (path == "net2") Stretched().apply(m, mesh, {});
                        });
    } catch (const Error& error) {
      told = error.what();
    }
    EXPECT_CONTAINS(told, "distribute_module: partition_fn gives parameter 'net2.weight'");
    EXPECT_EQ(ids_of(mlp), ids);
  });
}

// What is tied to a parameter and not reached by the change would keep the old tensor.
TEST(ModuleChange, RefusesToReplaceOneOfTwoThatAreTied) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    Mlp mlp(world, 8, 8, 8);
    mlp.net2.weight = mlp.net1.weight;
    const std::vector<const void*> ids = ids_of(mlp);
    ParallelPlan plan;
    plan[""] = ColwiseParallel{};
    const auto is_named = [&](const std::string& text, const std::string& who) {
      EXPECT_CONTAINS(text, who + ": parameter 'net1.weight' (");
      EXPECT_CONTAINS(text, "is tied to 'net2.weight'");
      EXPECT_CONTAINS(text, "give " + who + " a module that holds both");
      EXPECT_EQ(ids_of(mlp), ids);
      EXPECT_TRUE(mlp.net1.weight.is_leaf() && mlp.net1.weight.requires_grad());
    };
    std::string text = co_await error_of(parallelize_module(mlp.net1, mesh, plan));
    is_named(text, "parallelize_module");
    text = error_of([&] { distribute_module(mlp.net1, mesh); }, ErrorKind::BadInput);
    is_named(text, "distribute_module");
    text = error_of([&] { fully_shard(mlp.net1, mesh); }, ErrorKind::BadInput);
    is_named(text, "fully_shard");
    fully_shard(mlp.net1, mesh, {.ignored_params = {mlp.net1.weight}});  // it stays
    fully_shard(mlp, mesh);
    EXPECT_EQ(mlp.net1.weight.id(), mlp.net2.weight.id());
    EXPECT_TRUE(mlp.net1.weight.is_distributed());
  });
}

// Afterwards they would be two parameters, of which each would be trained by itself.
TEST(ModuleChange, RefusesToReplaceOneOfTwoThatShareMemory) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    Mlp mlp(world, 8, 8, 8);
    Tensor shown = mlp.net1.weight.detach();
    shown.set_requires_grad(true);
    mlp.net2.weight = shown;
    Tensor half = slice(mlp.net1.bias.detach(), 0, 0, 8);
    half.set_requires_grad(true);
    mlp.net2.bias = half;
    std::vector<const void*> ids = ids_of(mlp);
    ParallelPlan one, both;
    both["net1"] = one["net1"] = ColwiseParallel{};
    both["net2"] = RowwiseParallel{};
    const auto is_named = [&](const std::string& text, const std::string& who,
                              const std::string& other = "net2.weight") {
      EXPECT_CONTAINS(text, who + ": parameters 'net1.");
      EXPECT_CONTAINS(text, "' (f64[8");
      EXPECT_CONTAINS(text, ") and '" + other + "' (");
      EXPECT_EQ(ids_of(mlp), ids);
    };
    for (const ParallelPlan& plan : {one, both}) {
      const std::string text = co_await error_of(parallelize_module(mlp, mesh, plan));
      is_named(text, "parallelize_module");
    }
    is_named(error_of([&] { distribute_module(mlp, mesh); }, ErrorKind::BadInput),
             "distribute_module");
    is_named(error_of([&] { fully_shard(mlp.net1, mesh); }, ErrorKind::BadInput), "fully_shard");
    mlp.net2.weight = mlp.net1.weight;
    ids = ids_of(mlp);
    is_named(error_of([&] { fully_shard(mlp, mesh); }, ErrorKind::BadInput), "fully_shard",
             "net2.bias");
    mlp.net2.bias = half.detach().clone();
    fully_shard(mlp, mesh);
    EXPECT_EQ(mlp.net1.weight.id(), mlp.net2.weight.id());
  });
}

TEST(ModuleChange, RefusesToReplaceWhatWasComputedOrIsACopiedView) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    Mlp mlp(world, 8, 8, 8);
    mlp.net2.weight = mlp.net1.weight * 2.0;
    ParallelPlan plan;
    plan["net1"] = ColwiseParallel{};
    plan["net2"] = RowwiseParallel{};
    std::string text = co_await error_of(parallelize_module(mlp, mesh, plan));
    EXPECT_CONTAINS(text, "parameter 'net2.weight' (f64[8,8]) was made by mul");
    text = error_of([&] { fully_shard(mlp, mesh); }, ErrorKind::BadInput);
    EXPECT_CONTAINS(text, "parameter 'net2.weight' (f64[8,8]) was made by mul");
    const DeviceMesh both = init_device_mesh(world, {1, 2}, {"dp", "tp"});
    const DTensor cut = distribute_tensor(random(world, Shape{16, 8}), both["tp"], Shard(0));
    mlp.net1.weight = cut.narrow(0, 0, 8).detach();
    mlp.net2.weight = cut.detach();
    text = error_of([&] { fully_shard(mlp, both["dp"]); }, ErrorKind::BadInput);
    EXPECT_CONTAINS(text, "share memory");
  });
}

// Parts of one buffer that have nothing in common are parameters of their own.
TEST(ModuleChange, TakesParametersThatLieBesideEachOther) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    Mlp mlp(world, 8, 8, 8);
    const Tensor flat = random(world, Shape{16}), fused = random(world, Shape{8, 16});
    mlp.net1.bias = slice(flat, 0, 0, 8).detach();
    mlp.net2.bias = slice(flat, 0, 8, 16).detach();
    mlp.net1.weight = slice(fused, 1, 0, 8).detach();
    mlp.net2.weight = slice(fused, 1, 8, 16).detach();
    ParallelPlan plan;
    plan["net1"] = ColwiseParallel{};
    plan["net2"] = RowwiseParallel{};
    co_await parallelize_module(mlp, mesh, plan);
    expect_close(full_tensor(mlp.net1.bias), slice(flat, 0, 0, 8));
    expect_close(full_tensor(mlp.net2.bias), slice(flat, 0, 8, 16));
    expect_close(full_tensor(mlp.net1.weight), slice(fused, 1, 0, 8));
    expect_close(full_tensor(mlp.net2.weight), slice(fused, 1, 8, 16));
  });
}

}  // namespace
}  // namespace coshard::testing
