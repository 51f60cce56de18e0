#include "styles/no_parallel.h"

#include "examples/own_style/batch_parallel.h"
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

TEST(NoParallel, ReplicatesParametersOfTheSourceRankAndGivesALocalOutput) {
  on_ranks(2, [](World& world) -> Task<void> {
    auto [plain, linear] = twins<nn::Linear>(6, 4, world, kF64);
    if (world.rank() == 1) {
      const NoGradGuard no_grad;
      fill_(linear->weight, 0);
    }
    const DeviceMesh mesh = line(world);
    co_await parallelize_module(*linear, mesh, NoParallel{});
    EXPECT_EQ(linear->weight.layout(), Layout(Replicate()));
    const Tensor x = random(world, Shape{4, 6});
    const Counted got = co_await run_counted(world, *linear, x.detach());
    EXPECT_EQ(got.forward, Issued{});
    EXPECT_EQ(got.backward, Issued{});
    EXPECT_FALSE(got.output.is_distributed());
    const Counted want = co_await run_counted(world, *plain, x.detach());
    expect_close(got.output, want.output);
    expect_close(got.input_grad, want.input_grad);
    expect_close(linear->weight.grad(), plain->weight.grad());
  });
}

TEST(NoParallel, JudgesADTensorByItsOwnLayout) {
  on_ranks(2, [](World& world) -> Task<void> {
    auto [plain, linear] = twins<nn::Linear>(6, 4, world, kF64);
    const DeviceMesh mesh = line(world);
    co_await parallelize_module(*linear, mesh,
                                NoParallel{.output_layout = Shard(0), .use_local_output = false});
    const Tensor x = random(world, Shape{4, 6});
    const DTensor cut = distribute_tensor(x, mesh, Shard(0));
    const Counted got = co_await run_counted(world, *linear, cut);
    EXPECT_EQ(got.forward, Issued{.all_gather = 1});
    EXPECT_EQ(got.output.layout(), Layout(Shard(0)));
    const Counted want = co_await run_counted(world, *plain, x.detach());
    expect_close(got.output, want.output);
    expect_close(linear->weight.grad(), plain->weight.grad());
  });
}

TEST(NoParallel, PrintsItself) {
  std::ostringstream text;
  text << NoParallel{};
  EXPECT_EQ(text.str(),
            "NoParallel(input_layout=R, desired_input_layout=R, output_layout=R, "
            "use_local_output=true)");
}

TEST(OwnStyle, OfTheExampleTrainsOnPartsOfTheBatch) {
  on_ranks(2, [](World& world) -> Task<void> {
    auto [plain, linear] = twins<nn::Linear>(6, 4, world, kF64);
    const DeviceMesh mesh = line(world);
    co_await parallelize_module(*linear, mesh, BatchParallel{});
    const Tensor x = random(world, Shape{8, 6});
    const Counted got = co_await run_counted(world, *linear, part(world, x, 0));
    EXPECT_EQ(got.backward, Issued{});
    const Counted want = co_await run_counted(world, *plain, x.detach());
    EXPECT_EQ(linear->weight.grad().layout(), Layout(Partial()));
    expect_close(linear->weight.grad(), plain->weight.grad());
    Sgd optimizer(linear->parameters(), {.lr = 0.1}), reference(plain->parameters(), {.lr = 0.1});
    co_await optimizer.step();
    co_await reference.step();
    expect_close(linear->weight, plain->weight.detach());
  });
}

}  // namespace
}  // namespace coshard::testing
