#include <coshard/styles/no_parallel.h>

#include "examples/own_style/batch_parallel.h"
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

TEST(NoParallel, ReplicatesParametersOfTheSourceRankAndKeepsADTensor) {
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
    EXPECT_EQ(got.output.layout(), Layout(Replicate()));
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
    co_await parallelize_module(*linear, mesh, NoParallel{.output_layout = Shard(0)});
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
            "use_local_output=false)");
  EXPECT_EQ(
      str_cat(NoParallel{.use_local_output = true, .local_output_grad_placements = Partial()}),
      "NoParallel(input_layout=R, desired_input_layout=R, output_layout=R, "
      "use_local_output=true, local_output_grad_placements=P(sum))");
}

// A gate with one output per rank; each rank uses the score of its own expert.
Task<Tensor> scored_by_rank(World& world, Module& gate, const Tensor& x, bool partial) {
  Task<Tensor> forward = gate.forward(x);
  Tensor scores = co_await std::move(forward);
  if (scores.is_distributed())
    scores = partial ? to_local(scores, Layout(Partial())) : to_local(scores);
  const Tensor own = slice(scores, 1, world.rank(), world.rank() + 1);
  co_return sum(mul(own, 1.0 + world.rank()));
}

// All experts on one rank.
Task<Tensor> gate_gradient(World& world, Module& gate, const Tensor& x) {
  Task<Tensor> forward = gate.forward(x);
  const Tensor scores = co_await std::move(forward);
  const Tensor weights = counting(world, {world.size()});
  const Tensor loss = sum(mul(scores, weights));
  co_await backward(loss);
  co_return gate.parameter("weight").grad();
}

TEST(NoParallel, AGateWhoseScoresEachRankUsesForItselfTrainsAsOnOneRank) {
  for (const bool local : {false, true})
    on_ranks(2, [local](World& world) -> Task<void> {
      auto [plain, gate] = twins<nn::Linear>(6, 2, world, kF64);
      const Tensor x = random(world, Shape{4, 6});
      Task<Tensor> reference = gate_gradient(world, *plain, x);
      const Tensor want = co_await std::move(reference);
      NoParallel style;
      if (local) style = {.use_local_output = true, .local_output_grad_placements = Partial()};
      const DeviceMesh mesh = line(world);
      co_await parallelize_module(*gate, mesh, style);
      Task<Tensor> scored = scored_by_rank(world, *gate, x, true);
      const Tensor loss = co_await std::move(scored);
      co_await backward(loss);
      expect_close(gate->weight.grad(), want);
      SGD optimizer(gate->parameters(), {.lr = 0.1});
      co_await optimizer.step();
      co_await verify_replicated(*gate);
    });
}

TEST(NoParallel, PartialGradientsTakenForReplicasAreAnErrorAtTheFirstStepOnAllRanks) {
  on_ranks(2, [](World& world) -> Task<void> {
    nn::Linear gate(6, 2, world, kF64);
    const DeviceMesh mesh = line(world);
    const NoParallel style{.use_local_output = true};
    co_await parallelize_module(gate, mesh, style);
    const Tensor x = random(world, Shape{4, 6});
    Task<Tensor> scored = scored_by_rank(world, gate, x, false);
    const Tensor loss = co_await std::move(scored);
    co_await backward(loss);
    SGD optimizer(gate.parameters(), {.lr = 0.1});
    const std::string text = co_await error_of(optimizer.step());
    EXPECT_CONTAINS(text, "replicas differ: the gradient of parameter 'weight'");
  });
}

TEST(OwnStyle, OfTheExampleTrainsOnPartsOfTheBatch) {
  on_ranks(2, [](World& world) -> Task<void> {
    auto [plain, linear] = twins<nn::Linear>(6, 4, world, kF64);
    const DeviceMesh mesh = line(world);
    co_await parallelize_module(*linear, mesh, BatchParallel());
    const Tensor x = random(world, Shape{8, 6});
    const Counted got = co_await run_counted(world, *linear, part(world, x, 0));
    EXPECT_EQ(got.backward, Issued{});
    const Counted want = co_await run_counted(world, *plain, x.detach());
    EXPECT_EQ(linear->weight.grad().layout(), Layout(Partial()));
    expect_close(linear->weight.grad(), plain->weight.grad());
    SGD optimizer(linear->parameters(), {.lr = 0.1}), reference(plain->parameters(), {.lr = 0.1});
    co_await optimizer.step();
    co_await reference.step();
    expect_close(linear->weight, plain->weight.detach());
  });
}

}  // namespace
}  // namespace coshard::testing
