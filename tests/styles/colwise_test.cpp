#include <coshard/styles/colwise.h>

#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

TEST(ColwiseParallel, CutsALinearByColumnsWithOneAllReduceBackward) {  // A83
  on_ranks(4, [](World& world) -> Task<void> {
    auto [plain, linear] = twins<nn::Linear>(16, 16, world, kF64);
    const DeviceMesh mesh = line(world);
    co_await parallelize_module(*linear, mesh, ColwiseParallel{});
    EXPECT_EQ(linear->weight.layout(), Layout(Shard(0)));
    EXPECT_EQ(linear->bias.layout(), Layout(Shard(0)));
    const Tensor x = random(world, Shape{8, 16});
    const Counted got = co_await run_counted(world, *linear, x.detach());
    EXPECT_EQ(got.output.shape(), (Shape{8, 4}));
    EXPECT_EQ(got.forward, Issued{});
    EXPECT_EQ(got.backward, Issued{.all_reduce = 1});
    const Counted want = co_await run_counted(world, *plain, x.detach());
    expect_close(from_local(got.output.detach(), mesh, Shard(1)), want.output);
    expect_close(got.input_grad, want.input_grad);
    expect_close(linear->weight.grad(), plain->weight.grad());
    expect_close(linear->bias.grad(), plain->bias.grad());
  });
}

TEST(ColwiseParallel, GathersARowShardedInputAndScattersItsGradient) {  // A84
  on_ranks(4, [](World& world) -> Task<void> {
    auto [plain, linear] = twins<nn::Linear>(16, 16, world, kF64);
    const DeviceMesh mesh = line(world);
    co_await parallelize_module(*linear, mesh, ColwiseParallel{.input_layouts = Shard(0)});
    const Tensor x = random(world, Shape{32, 16});
    const Counted got = co_await run_counted(world, *linear, part(world, x, 0));
    EXPECT_EQ(got.output.shape(), (Shape{32, 4}));
    EXPECT_EQ(got.forward, Issued{.all_gather = 1});
    EXPECT_EQ(got.backward, Issued{.reduce_scatter = 1});
    const Counted want = co_await run_counted(world, *plain, x.detach());
    expect_close(from_local(got.input_grad, mesh, Shard(0)), want.input_grad);
  });
}

TEST(ColwiseParallel, CutsAnEmbeddingWithoutCommunication) {  // A85
  on_ranks(4, [](World& world) -> Task<void> {
    auto [plain, embedding] = twins<nn::Embedding>(16, 16, world, kEmbeddingF64);
    const DeviceMesh mesh = line(world);
    co_await parallelize_module(*embedding, mesh, ColwiseParallel{});
    EXPECT_EQ(embedding->weight.layout(), Layout(Shard(1)));
    const Tensor ids = integers(world, Shape{4, 2}, 16);
    const Counted got = co_await run_counted(world, *embedding, ids);
    EXPECT_EQ(got.output.shape(), (Shape{4, 2, 4}));
    EXPECT_EQ(got.forward, Issued{});
    EXPECT_EQ(got.backward, Issued{});
    const Counted want = co_await run_counted(world, *plain, ids);
    expect_close(embedding->weight.grad(), plain->weight.grad());
  });
}

TEST(ColwiseParallel, KeepsRequiresGradOfEachParameter) {  // A86
  on_ranks(2, [](World& world) -> Task<void> {
    nn::Linear linear(8, 8, world, kF64);
    linear.weight.set_requires_grad(false);
    const DeviceMesh mesh = line(world);
    co_await parallelize_module(linear, mesh, ColwiseParallel{});
    EXPECT_FALSE(linear.weight.requires_grad());
    EXPECT_TRUE(linear.bias.requires_grad());
    EXPECT_TRUE(linear.bias.is_leaf());
  });
}

TEST(ColwiseParallel, GivesADTensorInTheLayoutThatIsAskedFor) {
  on_ranks(2, [](World& world) -> Task<void> {
    auto [plain, linear] = twins<nn::Linear>(6, 5, world, kF64);
    const DeviceMesh mesh = line(world);
    const ColwiseParallel style{.output_layouts = Replicate(), .use_local_output = false};
    co_await parallelize_module(*linear, mesh, style);
    const Tensor x = random(world, Shape{3, 6});
    const Tensor y = co_await linear->forward(x);
    EXPECT_EQ(y.layout(), Layout(Replicate()));
    const Tensor want = co_await plain->forward(x);
    expect_close(y, want);
  });
}

TEST(ColwiseParallel, TakesAnUnevenFeatureShardAsInput) {
  on_ranks(3, [](World& world) -> Task<void> {
    auto [plain, linear] = twins<nn::Linear>(7, 4, world, kF64);
    const DeviceMesh mesh = line(world);
    const ColwiseParallel style{.input_layouts = Shard(-1), .output_layouts = Replicate()};
    co_await parallelize_module(*linear, mesh, style);
    const Tensor x = random(world, Shape{3, 7});
    const DTensor cut = distribute_tensor(x, mesh, Shard(1));
    const Tensor y = co_await linear->forward(to_local(cut));
    const Tensor want = co_await plain->forward(x);
    expect_close(y, want);
  });
}

TEST(ColwiseParallel, JudgesADTensorInputByItsOwnLayout) {
  on_ranks(2, [](World& world) -> Task<void> {
    nn::Linear linear(4, 4, world, kF64);
    const DeviceMesh mesh = line(world);
    co_await parallelize_module(linear, mesh, ColwiseParallel{.input_layouts = Shard(0)});
    const Tensor x = random(world, Shape{4, 4});
    const DTensor whole = distribute_tensor(x, mesh, Replicate());
    CountingObserver counter(world);
    const Tensor y = co_await linear.forward(whole);
    EXPECT_EQ(take(counter), Issued{});
  });
}

TEST(ColwiseParallel, RefusesOtherModulesAndWrongWidths) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    nn::Sequential model;
    model.add<nn::LayerNorm>("norm", 8, world);
    ParallelPlan plan;
    plan["norm"] = ColwiseParallel{};
    const std::string text = co_await error_of(parallelize_module(model, mesh, plan));
    EXPECT_CONTAINS(text, "'norm' is a LayerNorm");
    nn::Linear linear(8, 8, world, kF64);
    co_await parallelize_module(linear, mesh, ColwiseParallel{});
    const Tensor narrow = random(world, Shape{2, 7});
    const std::string width = co_await error_of(discard(linear.forward(narrow)));
    EXPECT_CONTAINS(width, "7");
    Inputs none{Tensor()};
    const std::string missing = co_await error_of(discard(linear.call(none)));
    EXPECT_CONTAINS(missing, "without a tensor");
  });
}

TEST(ColwiseParallel, RefusesAnOutputDimensionThatTheTensorLacks) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    nn::Linear linear(8, 8, world, kF64);
    co_await parallelize_module(linear, mesh, ColwiseParallel{.output_layouts = Shard(3)});
    const Tensor x = random(world, Shape{2, 8});
    const std::string text = co_await error_of(discard(linear.forward(x)));
    EXPECT_CONTAINS(text, "3");
  });
}

TEST(ColwiseParallel, PrintsItsOptions) {
  EXPECT_EQ(cat(ColwiseParallel{}),
            "ColwiseParallel(input_layouts=R, output_layouts=S(-1), use_local_output=true)");
}

}  // namespace
}  // namespace coshard::testing
