// Both at once.
#include <coshard/styles/parallelize.h>
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

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

}  // namespace
}  // namespace coshard::testing
