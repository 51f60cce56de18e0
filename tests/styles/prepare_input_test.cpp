// What a module is called with.
#include <coshard/styles/parallelize.h>
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

// x and z by keyword, through a Colwise linear whose output stays a DTensor.
struct ByKeyword : Module {
  explicit ByKeyword(World& world) : linear(8, 4, world, kF64) {
    register_module("linear", linear);
  }
  Task<Outputs> run_all(Inputs inputs) override {
    Outputs outputs;
    for (const char* name : {"x", "y", "z"}) {
      Tensor t = inputs.get(9, name);
      if (!t.defined()) continue;
      Task<Tensor> call = linear.forward(std::move(t));
      outputs.push_back(co_await std::move(call));
    }
    co_return outputs;
  }
  nn::Linear linear;
};

TEST(PrepareModuleInput, GathersAShardedInput) {  // A93
  on_ranks(4, [](World& world) -> Task<void> {
    nn::Identity identity;
    const DeviceMesh mesh = line(world);
    const PrepareModuleInput style{.input_layouts = Shard(0), .desired_input_layouts = Replicate()};
    co_await parallelize_module(identity, mesh, style);
    const Tensor x = random(world, Shape{8, 16});
    const Tensor y = co_await identity.forward(part(world, x, 0));
    EXPECT_EQ(y.layout(), Layout(Replicate()));
    expect_close(y, x);
  });
}

TEST(PrepareModuleInput, LeavesPlaceholdersAloneAndIssuesAllBeforeWaiting) {
  on_ranks(2, [](World& world) -> Task<void> {
    Pair pair;
    const DeviceMesh mesh = line(world);
    const PrepareModuleInput style{.input_layouts = {Shard(0), std::nullopt},
                                   .desired_input_layouts = {Replicate(), std::nullopt}};
    co_await parallelize_module(pair, mesh, style);
    const Tensor x = random(world, Shape{2, 4});
    Inputs inputs(x, x);
    CountingObserver counter(world);
    const Outputs out = co_await pair.call(inputs);
    EXPECT_EQ(take(counter), Issued{.all_gather = 1});
    EXPECT_EQ(out[0].shape(), (Shape{4, 4}));
    EXPECT_EQ(out[1].id(), x.id());
  });
}

TEST(PrepareModuleInput, GivesLocalTensorsWhenAsked) {
  on_ranks(2, [](World& world) -> Task<void> {
    nn::Identity identity;
    const DeviceMesh mesh = line(world);
    const PrepareModuleInput style{
        .input_layouts = Shard(0), .desired_input_layouts = Shard(1), .use_local_output = true};
    co_await parallelize_module(identity, mesh, style);
    const Tensor x = random(world, Shape{4, 4});
    CountingObserver counter(world);
    const Tensor y = co_await identity.forward(part(world, x, 0));
    EXPECT_EQ(take(counter), Issued{.other = 1});
    EXPECT_FALSE(y.is_distributed());
    expect_close(from_local(y, mesh, Shard(1)), x);
  });
}

TEST(PrepareModuleInput, PreparesKeywordInputs) {  // A95
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    ByKeyword one(world), two(world);
    ParallelPlan plan;
    plan[""] = PrepareModuleInput{.input_kwarg_layouts = {{"y", Shard(0)}},
                                  .desired_input_kwarg_layouts = {{"y", Replicate()}}};
    plan["linear"] = ColwiseParallel{.use_local_output = false};
    co_await parallelize_module(one, mesh, plan);
    plan[""] =
        PrepareModuleInput{.input_kwarg_layouts = {{"x", Shard(0)}, {"z", Shard(0)}},
                           .desired_input_kwarg_layouts = {{"x", Replicate()}, {"z", Replicate()}}};
    co_await parallelize_module(two, mesh, plan);
    const Tensor x = random(world, Shape{4, 8});
    CountingObserver counter(world);
    Inputs with_y;
    with_y.keyword("y", x);
    const Outputs y = co_await one.call(with_y);
    EXPECT_EQ(take(counter), Issued{.all_gather = 1});
    EXPECT_EQ(y[0].shape(), (Shape{8, 4}));
    const DTensor cut = from_local(x, mesh, Shard(0));
    Inputs both;
    both.keyword("x", cut).keyword("z", x);
    const Outputs xz = co_await two.call(both);
    EXPECT_EQ(take(counter), Issued{.all_gather = 2});
  });
}

TEST(PrepareModuleInput, RefusesListsThatDoNotFit) {  // A94
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    Pair pair;
    const PrepareModuleInput lengths{.input_layouts = {Shard(0), Replicate()},
                                     .desired_input_layouts = Replicate()};
    const std::string text = co_await error_of(parallelize_module(pair, mesh, lengths));
    EXPECT_CONTAINS(text, "(S(0), R)");
    EXPECT_CONTAINS(text, "same length");
    const PrepareModuleInput alone{.input_layouts = Shard(0)};
    const std::string single = co_await error_of(parallelize_module(pair, mesh, alone));
    EXPECT_CONTAINS(single, "None");
    const PrepareModuleInput keywords{.input_kwarg_layouts = {{"x", Shard(0)}, {"y", Replicate()}},
                                      .desired_input_kwarg_layouts = {{"x", Replicate()}}};
    const std::string kwargs = co_await error_of(parallelize_module(pair, mesh, keywords));
    EXPECT_CONTAINS(kwargs, "{x: S(0), y: R}");
    const PrepareModuleInput names{.input_kwarg_layouts = {{"x", Shard(0)}},
                                   .desired_input_kwarg_layouts = {{"z", Replicate()}}};
    const std::string other = co_await error_of(parallelize_module(pair, mesh, names));
    EXPECT_CONTAINS(other, "'x'");
    const PrepareModuleInput one{.input_layouts = Shard(0), .desired_input_layouts = Replicate()};
    co_await parallelize_module(pair, mesh, one);
    const Tensor x = random(world, Shape{2, 4});
    Inputs inputs(x, x);
    const std::string count = co_await error_of(discard(pair.call(inputs)));
    EXPECT_CONTAINS(count, "2 inputs");
  });
}

}  // namespace
}  // namespace coshard::testing
