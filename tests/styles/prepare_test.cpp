#include <coshard/styles/parallelize.h>
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

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

TEST(PrepareModuleOutput, CutsAReplicatedOutputWithoutCommunication) {  // A96
  on_ranks(4, [](World& world) -> Task<void> {
    nn::Identity identity;
    const DeviceMesh mesh = line(world);
    const PrepareModuleOutput style{.output_layouts = Replicate(),
                                    .desired_output_layouts = Shard(0)};
    co_await parallelize_module(identity, mesh, style);
    const Tensor x = random(world, Shape{8, 16});
    CountingObserver counter(world);
    const Tensor y = co_await identity.forward(x);
    EXPECT_EQ(take(counter), Issued{});
    EXPECT_FALSE(y.is_distributed());
    expect_close(y, part(world, x, 0));
    // A DTensor is judged by its own layout, whatever output_layouts says.
    const DTensor cut = distribute_tensor(x, mesh, Shard(1));
    counter.reset();
    const Tensor z = co_await identity.forward(cut);
    EXPECT_EQ(take(counter), Issued{.other = 1});
    expect_close(z, part(world, x, 0));
  });
}

TEST(PrepareModuleOutput, TreatsEachOutputAndRefusesOtherNumbers) {
  on_ranks(2, [](World& world) -> Task<void> {
    Pair pair;
    const DeviceMesh mesh = line(world);
    const PrepareModuleOutput style{.output_layouts = {std::nullopt, Shard(0)},
                                    .desired_output_layouts = {std::nullopt, Replicate()},
                                    .use_local_output = false};
    co_await parallelize_module(pair, mesh, style);
    const Tensor x = random(world, Shape{2, 4});
    Inputs inputs(x, x);
    const Outputs out = co_await pair.call(inputs);
    EXPECT_EQ(out[0].id(), x.id());
    EXPECT_EQ(out[1].layout(), Layout(Replicate()));
    EXPECT_EQ(out[1].shape(), (Shape{4, 4}));
    const std::string text = co_await error_of(discard(pair.forward(x)));
    EXPECT_CONTAINS(text, "1 outputs");
    const PrepareModuleOutput lengths{.output_layouts = Replicate(),
                                      .desired_output_layouts = {Replicate(), Shard(0)}};
    Pair another;
    const std::string other = co_await error_of(parallelize_module(another, mesh, lengths));
    EXPECT_CONTAINS(other, "same length");
  });
}

TEST(PrepareModuleInputOutput, DoesBoth) {
  on_ranks(2, [](World& world) -> Task<void> {
    auto [plain, linear] = twins<nn::Linear>(4, 4, world, kF64);
    nn::Sequential model;
    model.append("linear", linear);
    const DeviceMesh mesh = line(world);
    ParallelPlan plan;
    plan[""] = PrepareModuleInputOutput{.input_layouts = Shard(0),
                                        .desired_input_layouts = Replicate(),
                                        .output_layouts = Replicate(),
                                        .desired_output_layouts = Shard(0)};
    plan["linear"] = ColwiseParallel{.output_layouts = Replicate(), .use_local_output = false};
    co_await parallelize_module(model, mesh, plan);
    const Tensor x = random(world, Shape{6, 4});
    const Counted got = co_await run_counted(world, model, part(world, x, 0));
    EXPECT_EQ(got.forward, Issued{.all_gather = 2});
    const Counted want = co_await run_counted(world, *plain, x.detach());
    expect_close(from_local(got.output.detach(), mesh, Shard(0)), want.output);
    expect_close(from_local(got.input_grad, mesh, Shard(0)), want.input_grad);
    expect_close(linear->weight.grad(), plain->weight.grad());
  });
}

TEST(PrepareModuleInputOutput, HandsLocalTensorsToTheModule) {
  on_ranks(2, [](World& world) -> Task<void> {
    nn::Linear linear(4, 4, world, kF64);
    const DeviceMesh mesh = line(world);
    const PrepareModuleInputOutput style{.input_layouts = Shard(0),
                                         .desired_input_layouts = Replicate(),
                                         .use_local_input = true,
                                         .output_layouts = Replicate(),
                                         .desired_output_layouts = Shard(0)};
    co_await parallelize_module(linear, mesh, style);
    const Tensor x = random(world, Shape{6, 4});
    const Tensor y = co_await linear.forward(part(world, x, 0));
    EXPECT_EQ(y.shape(), (Shape{3, 4}));
    EXPECT_CONTAINS(cat(style), "use_local_output=true");
  });
}

// Takes one of its columns for itself, as an expert does: the gradient of its input is Partial.
struct OwnColumn : Module {
  explicit OwnColumn(World& world) : rank(world.rank()) {}
  Task<Tensor> run(Tensor x) override { co_return slice(x, 1, rank, rank + 1); }
  int rank;
};

TEST(Prepare, GradientPlacementsOfLocalInputsAndOutputsAreTakenAsGiven) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    DTensor x = ones(mesh, Replicate(), {3, 2}, DType::F64);
    x.set_requires_grad(true);
    OwnColumn column(world);
    const PrepareModuleInput style{.input_layouts = Replicate(),
                                   .desired_input_layouts = Replicate(),
                                   .use_local_output = true,
                                   .local_output_grad_placements = Partial()};
    co_await parallelize_module(column, mesh, style);
    Task<Tensor> forward = column.forward(x);
    const Tensor y = co_await std::move(forward);
    const Tensor loss = sum(y);
    co_await backward(loss);
    EXPECT_EQ(full_tensor(x.grad()).to_vector(), std::vector<double>(6, 1));
  });
}

// A plain input that is the same on all ranks, of which each has a part of the gradient.
Task<Tensor> gradient_of_plain(World& world, const ColwiseParallel& style) {
  auto [plain, linear] = twins<nn::Linear>(4, 6, world, kF64);
  const DeviceMesh mesh = line(world);
  co_await parallelize_module(*linear, mesh, style);
  Tensor x = ones(world.device(), {3, 4}, DType::F64);
  x.set_requires_grad(true);
  Task<Tensor> forward = linear->forward(x);
  const Tensor y = co_await std::move(forward);
  const Tensor loss = sum(y);
  co_await backward(loss);
  co_return x.grad();
}

TEST(Colwise, GradientPlacementsOfItsPlainInputLeaveTheSumToTheUser) {
  on_ranks(2, [](World& world) -> Task<void> {
    Task<Tensor> summed = gradient_of_plain(world, {});
    const Tensor whole = co_await std::move(summed);
    const ColwiseParallel partial{.local_input_grad_placements = Partial()};
    Task<Tensor> unsummed = gradient_of_plain(world, partial);
    const Tensor mine = co_await std::move(unsummed);
    expect_close(from_local(mine, line(world), Partial()), whole);
    EXPECT_NE(mine.to_vector(), whole.to_vector());
  });
}

TEST(Prepare, GradientPlacementsNeedALayoutEach) {
  const PrepareModuleInput style{.input_layouts = Replicate(),
                                 .desired_input_layouts = Replicate(),
                                 .local_output_grad_placements = {Partial(), Partial()}};
  EXPECT_THROW(style.check(), Error);
  const PrepareModuleOutput out{.output_layouts = Replicate(),
                                .desired_output_layouts = Replicate(),
                                .local_input_grad_placements = {Partial(), Partial()}};
  EXPECT_THROW(out.check(), Error);
  EXPECT_CONTAINS(cat(style), "local_output_grad_placements=(P(sum), P(sum))");
}

}  // namespace
}  // namespace coshard::testing
