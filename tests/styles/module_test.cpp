#include <coshard/styles/module.h>

#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

std::vector<std::string> names_of(Module& module) {
  std::vector<std::string> names;
  for (const NamedParameter& p : module.named_parameters()) names.push_back(p.name);
  return names;
}

TEST(Module, NamesParametersByPathInOrderOfRegistration) {
  on_ranks(1, [](World& world) -> Task<void> {
    Mlp mlp(world);
    const std::vector<std::string> want = {"net1.weight", "net1.bias", "net2.weight", "net2.bias"};
    EXPECT_EQ(names_of(mlp), want);
    EXPECT_EQ(mlp.parameters().size(), 4U);
    EXPECT_EQ(mlp.find("net2"), &mlp.net2);
    EXPECT_EQ(mlp.find("net3"), nullptr);
    EXPECT_EQ(mlp.net2.path(), "net2");
    co_return;
  });
}

TEST(Module, ListsATiedParameterOnceAndAMissingBiasNever) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::Sequential model;
    auto& a = model.add<nn::Linear>("a", 4, 4, world, nn::LinearOptions{.bias = false});
    auto& b = model.add<nn::Linear>("b", 4, 4, world, nn::LinearOptions{.bias = false});
    b.weight = a.weight;
    EXPECT_EQ(names_of(model), std::vector<std::string>{"a.weight"});
    EXPECT_EQ(model.named_slots().size(), 2U);
    co_return;
  });
}

TEST(Module, FindsAParameterByNameAndListsTheNamesWhenThereIsNone) {
  on_ranks(1, [](World& world) -> Task<void> {
    Mlp mlp(world);
    EXPECT_EQ(mlp.parameter("net2.bias").id(), mlp.net2.bias.id());
    std::string text;
    try {
      mlp.parameter("net2.bais");
    } catch (const Error& error) {
      text = error.what();
    }
    EXPECT_CONTAINS(text, "net2.bais");
    EXPECT_CONTAINS(text, "net1.weight");
    co_return;
  });
}

struct Fails : Module {
  Task<Tensor> run(Tensor) override {
    co_await yield();
    fail(ErrorKind::BadInput, "it does not fit");
  }
};

TEST(Module, AFailureNamesTheInnermostModuleThatItLeft) {
  for (const bool hooked : {false, true}) {
    std::string told;
    int line = 0;
    WorldOptions options = test_options(1);
    options.on_failure = [&](const Failure& failure) { told += failure.line(); };
    const Program program = [&](World& world) -> Task<void> {
      nn::Sequential model;
      auto& layer = model.add<nn::Sequential>("layer");
      auto& mlp = layer.add<Fails>("mlp");
      layer.add<nn::GELU>("act");
      if (hooked) mlp.add_pre_hook([](Module&, Inputs&) {});
      line = __LINE__ + 1;
      Task<Tensor> forward = model.forward(ones(world.device(), {2}, DType::F64));
      co_await std::move(forward);
    };
    EXPECT_THROW(run_ranks(options, program), Error);
    EXPECT_EQ(told, str_cat("rank 0, layer.mlp: it does not fit at module_test.cpp:", line));
  }
}

TEST(Module, RefusesNamesThatAreTakenOrHaveADot) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::Sequential model;
    model.add<nn::GELU>("act");
    EXPECT_THROW(model.add<nn::GELU>("act"), Error);
    EXPECT_THROW(model.add<nn::GELU>("a.b"), Error);
    EXPECT_THROW(model.add<nn::GELU>(""), Error);
    co_return;
  });
}

TEST(Module, HooksRunInOrderAndMayChangeWhatGoesInAndOut) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::Identity module;
    module.add_pre_hook([](Module&, Inputs& in) { in.args[0] = add(in.args[0], 1.0); });
    module.add_pre_hook([](Module&, Inputs& in) { in.args[0] = mul(in.args[0], 10.0); });
    module.add_post_hook([](Module&, Outputs& out) { out[0] = add(out[0], 0.5); });
    const Tensor x = full(world.device(), Shape{2}, 2.0, DType::F64);
    const Tensor y = co_await module.forward(x);
    EXPECT_EQ(y.to_vector(), (std::vector<double>{30.5, 30.5}));
  });
}

TEST(Module, TakesSeveralInputsByPositionAndKeyword) {
  on_ranks(1, [](World& world) -> Task<void> {
    Pair pair;
    const Tensor a = full(world.device(), Shape{1}, 1.0), b = full(world.device(), Shape{1}, 2.0);
    Inputs both(a, b);
    const Outputs two = co_await pair.call(both);
    EXPECT_EQ(two.size(), 2U);
    Inputs named(a);
    named.keyword("y", b);
    const Outputs same = co_await pair.call(named);
    EXPECT_EQ(same[1].id(), b.id());
    const Tensor one = co_await pair.forward(a);
    EXPECT_EQ(one.id(), a.id());
    const std::string text = co_await error_of(discard(pair.forward(a, b)));
    EXPECT_CONTAINS(text, "2 outputs");
    nn::Identity identity;
    const std::string wrong = co_await error_of(discard(identity.call(both)));
    EXPECT_CONTAINS(wrong, "takes one tensor");
  });
}

TEST(Module, OverridingNeitherRunIsAnError) {
  on_ranks(1, [](World& world) -> Task<void> {
    struct Nothing : Module {};
    Nothing nothing;
    const Tensor x = zeros(world.device(), Shape{1});
    const std::string text = co_await error_of(discard(nothing.forward(x)));
    EXPECT_CONTAINS(text, "Nothing");
  });
}

struct Paths final : Observer {
  void module_enter(std::string_view path) override { seen += "<" + std::string(path); }
  void module_exit(std::string_view path) override { seen += std::string(path) + ">"; }
  std::string seen;
};

TEST(Module, TellsTheObserverWhichModuleRuns) {
  on_ranks(1, [](World& world) -> Task<void> {
    Mlp mlp(world);
    nn::Sequential model;
    model.append("mlp", std::shared_ptr<Module>(&mlp, [](Module*) {}));
    const Tensor x = random(world, Shape{2, 10});
    Paths paths;
    world.add_observer(&paths);
    const Tensor y = co_await model.forward(x);
    world.remove_observer(&paths);
    EXPECT_EQ(paths.seen, "<<mlp<mlp.net1mlp.net1><mlp.net2mlp.net2>mlp>>");
  });
}

// Only such a rank knows the innermost module of its collectives.
TEST(Module, OneRankAloneMayBeObserved) {
  on_ranks(2, [](World& world) -> Task<void> {
    Mlp mlp(world);
    const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
    ParallelPlan plan;
    plan["net1"] = ColwiseParallel{};
    plan["net2"] = RowwiseParallel{};
    co_await parallelize_module(mlp, mesh, plan);
    const Tensor x = random(world, Shape{2, 10}).set_requires_grad(true);
    Paths paths;
    if (world.rank() == 0) world.add_observer(&paths);
    for (int step = 0; step < 2; ++step) {
      Task<Tensor> forward = mlp.forward(x);
      const Tensor y = co_await std::move(forward);
      Task<void> walk = backward(sum(y));
      co_await std::move(walk);
    }
    Task<void> arrived = arrival_of({x.grad()});
    co_await std::move(arrived);
    if (world.rank() == 0) world.remove_observer(&paths);
  });
}

TEST(Module, ZeroGradAndTrainReachEveryModuleBelow) {
  on_ranks(1, [](World& world) -> Task<void> {
    Mlp mlp(world);
    const Tensor x = random(world, Shape{2, 10});
    const Tensor y = co_await mlp.forward(x);
    const Tensor loss = sum(y);
    co_await backward(loss);
    EXPECT_TRUE(mlp.net1.weight.grad().defined());
    mlp.zero_grad();
    EXPECT_FALSE(mlp.net1.weight.grad().defined());
    mlp.train(false);
    EXPECT_FALSE(mlp.net2.training());
  });
}

TEST(Module, AModuleListNamesItsModulesByNumber) {
  on_ranks(1, [](World& world) -> Task<void> {
    ModuleList<nn::Linear> list;
    list.append(std::make_shared<nn::Linear>(2, 2, world));
    list.append(std::make_shared<nn::Linear>(2, 2, world));
    EXPECT_EQ(names_of(list).front(), "0.weight");
    EXPECT_EQ(list[1].path(), "1");
    std::string paths;
    for (const auto& linear : list) paths += linear->path();
    EXPECT_EQ(paths, "01");
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing
