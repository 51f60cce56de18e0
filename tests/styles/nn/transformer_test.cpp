// The transformer and its plans.
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

TEST(Transformer, CountsItsCollectivesAsPromised) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    nn::TransformerConfig config;
    config.layers = 3;
    config.dim = 16;
    config.heads = 4;
    config.ffn = 24;
    config.vocab = 12;
    config.seq = 8;
    const Tensor ids = integers(world, Shape{2, 8}, 12);
    for (const bool sequence_parallel : {false, true}) {
      nn::Transformer model(config, world);
      co_await parallelize_module(model, mesh, nn::transformer_plan(sequence_parallel));
      CountingObserver counter(world);
      const Tensor logits = co_await model.forward(ids);
      const Issued forward = take(counter);
      const Tensor loss = co_await loss_parallel_cross_entropy(logits, ids);
      counter.reset();
      co_await backward(loss);
      const Issued backward_issued = take(counter);
      if (sequence_parallel) {
        EXPECT_EQ(forward, (Issued{.all_gather = 7, .reduce_scatter = 7}));
        EXPECT_EQ(backward_issued, (Issued{.all_gather = 7, .reduce_scatter = 7}));
      } else {
        EXPECT_EQ(forward, Issued{.all_reduce = 7});
        EXPECT_EQ(backward_issued, Issued{.all_reduce = 7});
      }
    }
  });
}

TEST(Transformer, RefusesSizesThatDoNotDivide) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::TransformerConfig config;
    config.dim = 20;
    config.heads = 8;
    EXPECT_THROW(nn::Transformer(config, world), Error);
    config = {};
    config.kv_heads = 3;
    EXPECT_THROW(nn::Transformer(config, world), Error);
    config = {.vocab = 8, .dim = 8, .layers = 1, .heads = 2, .ffn = 8, .seq = 4};
    nn::Transformer model(config, world);
    const Tensor longer = integers(world, Shape{1, 5}, 8);
    const std::string text = co_await error_of(discard(model.forward(longer)));
    EXPECT_CONTAINS(text, "seq = 4");
  });
}

TEST(Transformer, StartsFromTheSameNumbersOnEveryRankAndSharding) {
  on_ranks(2, [](World& world) -> Task<void> {
    manual_seed(11);
    const nn::Linear linear(8, 6, world, kF64);
    manual_seed(11);
    const DTensor cut = empty(line(world), Shard(0), Shape{6, 8}, DType::F64);
    normal_(cut, 0, 0.5);
    expect_close(cut, linear.weight.detach(), 0);
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing
