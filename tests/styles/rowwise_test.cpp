#include <coshard/styles/rowwise.h>

#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

TEST(RowwiseParallel, CutsALinearByRowsWithOneAllReduceForward) {  // A87, A89
  on_ranks(4, [](World& world) -> Task<void> {
    auto [plain, linear] = twins<nn::Linear>(16, 16, world, kF64);
    {
      const NoGradGuard no_grad;
      fill_(plain->bias, 3);
      fill_(linear->bias, 3);
    }
    const DeviceMesh mesh = line(world);
    co_await parallelize_module(*linear, mesh, RowwiseParallel{});
    EXPECT_EQ(linear->weight.layout(), Layout(Shard(1)));
    EXPECT_EQ(linear->bias.layout(), Layout(Replicate()));
    const Tensor x = random(world, Shape{8, 16});
    const Counted got = co_await run_counted(world, *linear, part(world, x, 1));
    EXPECT_EQ(got.forward, Issued{.all_reduce = 1});
    EXPECT_EQ(got.backward, Issued{});
    const Counted want = co_await run_counted(world, *plain, x.detach());
    expect_close(got.output, want.output);
    expect_close(from_local(got.input_grad, mesh, Shard(1)), want.input_grad);
    EXPECT_EQ(linear->bias.grad().layout(), Layout(Replicate()));
    expect_close(linear->bias.grad(), plain->bias.grad());
    expect_close(linear->weight.grad(), plain->weight.grad());
  });
}

TEST(RowwiseParallel, ScattersTheOutputAndGathersItsGradient) {  // A88
  on_ranks(4, [](World& world) -> Task<void> {
    auto [plain, linear] = twins<nn::Linear>(16, 16, world, kF64);
    const DeviceMesh mesh = line(world);
    co_await parallelize_module(*linear, mesh, RowwiseParallel{.output_layouts = Shard(0)});
    const Tensor x = random(world, Shape{8, 16});
    const Counted got = co_await run_counted(world, *linear, part(world, x, 1));
    EXPECT_EQ(got.output.shape(), (Shape{2, 16}));
    EXPECT_EQ(got.forward, Issued{.reduce_scatter = 1});
    EXPECT_EQ(got.backward, Issued{.all_gather = 1});
    const Counted want = co_await run_counted(world, *plain, x.detach());
    expect_close(from_local(got.output.detach(), mesh, Shard(0)), want.output);
    expect_close(linear->bias.grad(), plain->bias.grad());
    expect_close(linear->weight.grad(), plain->weight.grad());
  });
}

TEST(RowwiseParallel, CutsAnEmbeddingByRows) {  // A90
  on_ranks(4, [](World& world) -> Task<void> {
    auto [plain, embedding] = twins<nn::Embedding>(13, 16, world, kEmbeddingF64);
    const DeviceMesh mesh = line(world);
    co_await parallelize_module(*embedding, mesh, RowwiseParallel{.input_layouts = Replicate()});
    EXPECT_EQ(embedding->weight.layout(), Layout(Shard(0)));
    const Tensor ids = integers(world, Shape{4, 2}, 13);
    const Counted got = co_await run_counted(world, *embedding, ids);
    EXPECT_EQ(got.output.shape(), (Shape{4, 2, 16}));
    EXPECT_EQ(got.forward, Issued{.all_reduce = 1});
    EXPECT_EQ(got.backward, Issued{});
    const Counted want = co_await run_counted(world, *plain, ids);
    expect_close(got.output, want.output);
    expect_close(embedding->weight.grad(), plain->weight.grad());
  });
}

TEST(RowwiseParallel, ScattersTheOutputOfAnEmbedding) {  // A91
  on_ranks(4, [](World& world) -> Task<void> {
    auto [plain, embedding] = twins<nn::Embedding>(16, 16, world, kEmbeddingF64);
    const DeviceMesh mesh = line(world);
    const RowwiseParallel style{.input_layouts = Replicate(), .output_layouts = Shard(1)};
    co_await parallelize_module(*embedding, mesh, style);
    const Tensor ids = integers(world, Shape{8}, 16);
    const Counted got = co_await run_counted(world, *embedding, ids);
    EXPECT_EQ(got.output.shape(), (Shape{8, 4}));
    EXPECT_EQ(got.forward, Issued{.reduce_scatter = 1});
    EXPECT_EQ(got.backward, Issued{.all_gather = 1});
    const Counted want = co_await run_counted(world, *plain, ids);
    expect_close(embedding->weight.grad(), plain->weight.grad());
  });
}

TEST(RowwiseParallel, KeepsRequiresGradOfEachParameter) {  // A92
  on_ranks(2, [](World& world) -> Task<void> {
    nn::Linear linear(8, 8, world, kF64);
    linear.bias.set_requires_grad(false);
    const DeviceMesh mesh = line(world);
    co_await parallelize_module(linear, mesh, RowwiseParallel{});
    EXPECT_TRUE(linear.weight.requires_grad());
    EXPECT_FALSE(linear.bias.requires_grad());
  });
}

TEST(RowwiseParallel, TakesAWholeInputAndUnevenFeatures) {
  on_ranks(3, [](World& world) -> Task<void> {
    auto [plain, linear] = twins<nn::Linear>(7, 4, world, kF64);
    const DeviceMesh mesh = line(world);
    co_await parallelize_module(*linear, mesh, RowwiseParallel{.input_layouts = Replicate()});
    const Tensor x = random(world, Shape{3, 7});
    const Counted got = co_await run_counted(world, *linear, x.detach());
    const Counted want = co_await run_counted(world, *plain, x.detach());
    EXPECT_EQ(got.forward, Issued{.all_reduce = 1});
    expect_close(got.output, want.output);
    expect_close(got.input_grad, want.input_grad);
  });
}

TEST(RowwiseParallel, RefusesOtherModules) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    nn::GELU gelu;
    const std::string text = co_await error_of(parallelize_module(gelu, mesh, RowwiseParallel{}));
    EXPECT_CONTAINS(text, "GELU");
  });
}

TEST(RowwiseParallel, PrintsItsOptions) {
  EXPECT_EQ(cat(RowwiseParallel{.output_layouts = Shard(1)}),
            "RowwiseParallel(input_layouts=S(-1), output_layouts=S(1), use_local_output=true)");
}

TEST(RowwiseParallel, ReducesInTheDTypeItIsTold) {
  on_ranks(2, [](World& world) -> Task<void> {
    auto [plain, linear] = twins<nn::Linear>(8, 4, world, kF64);
    co_await parallelize_module(*linear, line(world), RowwiseParallel{.reduce_dtype = DType::F32});
    const Tensor x = random(world, Shape{3, 8});
    const Counted got = co_await run_counted(world, *linear, part(world, x, 1));
    EXPECT_EQ(got.forward, Issued{.all_reduce = 1});
    EXPECT_EQ(got.output.dtype(), DType::F32);
    EXPECT_EQ(linear->weight.grad().dtype(), DType::F64);
    const Counted want = co_await run_counted(world, *plain, x.detach());
    expect_close(to(got.output.detach(), DType::F64), want.output, 1e-6);
    expect_close(linear->weight.grad(), plain->weight.grad(), 1e-5);
    std::ostringstream text;
    text << RowwiseParallel{.reduce_dtype = DType::BF16};
    EXPECT_CONTAINS(text.str(), "use_local_output=true, reduce_dtype=bf16)");
  });
}

}  // namespace
}  // namespace coshard::testing
