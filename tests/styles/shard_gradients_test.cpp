// Gradients of a group of sharded parameters: hooks, and what cannot be reduced.
#include <coshard/runtime/coro/when_all.h>
#include "tests/styles/sharded_layers.h"

namespace coshard::testing {
namespace {

TEST(ShardGradients, RefusesTwoBackwardsAtOnce) {
  on_ranks(2, [](World& world) -> Task<void> {
    Layers model(world);
    shard_layers(model, dp_line(world), {});
    std::vector<Task<void>> walks;
    for (int time = 0; time < 2; ++time) {
      const Tensor y = co_await model.forward(rows_of(world, time, 0));
      walks.push_back(backward(mean(mul(y, y))));
    }
    const std::string text = co_await error_of(when_all(std::move(walks)));
    EXPECT_CONTAINS(text, "another one, which has not ended, reduces gradients of");
  });
}

TEST(ShardGradients, RunsHooksOfShardsAndRefusesThoseThatReplaceGradients) {
  on_ranks(2, [](World& world) -> Task<void> {
    Layers model(world, 1);
    shard_layers(model, dp_line(world), {});
    int calls = 0;
    register_post_accumulate_grad_hook(model.scale, [&](const Tensor& shard) {
      EXPECT_TRUE(shard.grad().defined());
      ++calls;
    });
    const Tensor y = co_await model.forward(rows_of(world, 0, 0));
    co_await backward(mean(mul(y, y)));
    EXPECT_EQ(calls, 1);
    register_hook(model.scale, [](const Tensor& gradient) { return gradient; });
    const Tensor again = co_await model.forward(rows_of(world, 0, 0));
    const std::string text = co_await error_of(backward(mean(mul(again, again))));
    EXPECT_CONTAINS(text, "'scale', which fully_shard has sharded");
  });
}

TEST(GroupsOfShards, TellRanksApartThatMissDifferentGradients) {
  std::string texts[2];
  WorldOptions options = test_options(2);
  if (!on_cpu() || options.communicator != "local") GTEST_SKIP() << "fails a world";
  try {
    run_ranks(options, [](World& world) -> Task<void> {
      Layers model(world);
      fully_shard(model, dp_line(world));
      model.scale.set_requires_grad(world.rank() == 1);
      const Tensor y = co_await model.forward(rows_of(world, 0, 0));
      co_await backward(mean(mul(y, y)));
      co_await discard(model.forward(rows_of(world, 0, 0)));
    });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::CommFailed) << error.what();
    EXPECT_CONTAINS(std::string(error.what()),
                    "reduced a group of shards with no gradient for parameter");
  }
}

}  // namespace
}  // namespace coshard::testing
