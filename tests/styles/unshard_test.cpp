// Parameters that fully_shard leaves alone, and those that are unsharded by hand.
#include "tests/styles/sharded_layers.h"

namespace coshard::testing {
namespace {

TEST(Unshard, LeavesIgnoredParametersAlone) {
  on_ranks(3, [](World& world) -> Task<void> {
    const auto [alone, sharded] = twins<Layers>(world, 2);
    FullyShardOptions options;
    options.ignored_params = {sharded->layers[0].net1.weight, sharded->scale};
    shard_layers(*sharded, dp_line(world), options);
    EXPECT_FALSE(sharded->layers[0].net1.weight.is_distributed());
    EXPECT_FALSE(sharded->scale.is_distributed());
    EXPECT_TRUE(sharded->layers[0].net2.weight.is_distributed());
    const Tensor x = rows_of(world, 0, 0);
    for (Layers* model : {alone.get(), sharded.get()}) {
      const Tensor y = co_await model->forward(x);
      co_await backward(mean(mul(y, y)));
    }
    expect_close(sharded->scale.grad(), alone->scale.grad());  // of this rank's rows
    for (Layers* model : {alone.get(), sharded.get()})
      all_reduce_gradients({model->scale, model->layers[0].net1.weight}, dp_line(world), 0,
                           Reduce::Avg);
    all_reduce_gradients({alone->layers[0].net2.weight}, dp_line(world), 0, Reduce::Avg);
    for (Layers* model : {alone.get(), sharded.get()}) {
      model->scale.grad().wait();
      model->layers[0].net1.weight.grad().wait();
    }
    expect_close(sharded->scale.grad(), alone->scale.grad());
    expect_close(sharded->layers[0].net1.weight.grad(), alone->layers[0].net1.weight.grad());
    expect_close(sharded->layers[0].net2.weight.grad(), alone->layers[0].net2.weight.grad());
  });
}

TEST(Unshard, ShowsWholeParametersUntilReshard) {
  on_ranks(3, [](World& world) -> Task<void> {
    Layers model(world, 2);
    const Tensor want = model.layers[0].net1.weight.detach();
    const std::vector<double> values = want.to_vector();
    shard_layers(model, dp_line(world), {});
    CountingObserver counter(world);
    for (int time = 0; time < 2; ++time) {
      co_await unshard(model.layers[0]);
      co_await unshard(model.layers[0]);
      EXPECT_EQ(take(counter), (Issued{.all_gather = 1}));
      EXPECT_FALSE(model.layers[0].net1.weight.is_distributed());
      EXPECT_EQ(model.layers[0].net1.weight.to_vector(), values);
      EXPECT_TRUE(model.layers[1].net1.weight.is_distributed());
      reshard(model.layers[0]);
      reshard(model.layers[0]);
      EXPECT_EQ(model.layers[0].net1.weight.layout(), Layout(Shard(0)));
      EXPECT_EQ(take(counter), Issued());
    }
  });
}

// What is unsharded by hand is gathered neither by forward nor by backward.
TEST(Unshard, SparesTheGathersOfAStep) {
  on_ranks(2, [](World& world) -> Task<void> {
    const auto [plain, sharded] = twins<Layers>(world);
    shard_layers(*sharded, dp_line(world), {});
    const DataParallel replicas(plain->parameters(), dp_line(world), 0);
    SGD optimizer(sharded->parameters(), {.lr = 0.1}), reference(plain->parameters(), {.lr = 0.1});
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      reference.zero_grad();
      co_await unshard(sharded->layers[1]);
      const Counted got = co_await run_counted(world, *sharded, rows_of(world, step, 0));
      EXPECT_EQ(got.forward, (Issued{.all_gather = 3}));
      EXPECT_EQ(got.backward, (Issued{.all_gather = 3, .reduce_scatter = 4}));
      reshard(sharded->layers[1]);
      const Counted want = co_await run_counted(world, *plain, rows_of(world, step, 0));
      expect_close(got.output, want.output);
      expect_close(got.input_grad, want.input_grad);
      co_await optimizer.step();
      co_await reference.step();
    }
    for (std::size_t p = 0; p < reference.parameters().size(); ++p)
      expect_close(optimizer.parameters()[p], reference.parameters()[p]);
  });
}

TEST(Unshard, RefusesOtherModulesAndStaleParameters) {
  on_ranks(2, [](World& world) -> Task<void> {
    Layers model(world, 1);
    shard_layers(model, dp_line(world), {});
    std::string text = co_await error_of(unshard(model.layers[0].net1));
    EXPECT_CONTAINS(text, "Linear 'layers.0.net1'");
    Task<void> whole = unshard(model.layers[0]);
    co_await std::move(whole);
    {
      const NoGradGuard no_grad;
      reshard(model.layers[0]);
      const Tensor shard = model.layers[0].net1.weight;
      Task<void> again = unshard(model.layers[0]);
      co_await std::move(again);
      mul_(shard, 2);
    }
    text = co_await error_of(discard(model.forward(rows_of(world, 0, 0))));
    EXPECT_CONTAINS(text, "'net1.weight' of Mlp 'layers.0' was written to since unshard");
    EXPECT_CONTAINS(text, "reshard");
    reshard(model.layers[0]);
    co_await discard(model.forward(rows_of(world, 0, 0)));
  });
}

}  // namespace
}  // namespace coshard::testing
