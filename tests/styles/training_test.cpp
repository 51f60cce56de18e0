// Training on 1, 2, 3 and 4 ranks gives what one device gives: losses and parameters in f64.
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

struct Shapes {
  std::int64_t heads, kv_heads, dim, ffn, vocab, seq;
};

Task<void> train_transformer(World& world, Shapes s, bool sequence_parallel) {
  const DeviceMesh mesh = line(world);
  nn::TransformerConfig config;
  config.layers = 2;
  config.dim = s.dim;
  config.heads = s.heads;
  config.kv_heads = s.kv_heads;
  config.ffn = s.ffn;
  config.vocab = s.vocab;
  config.seq = s.seq;
  config.dtype = DType::F64;
  auto [plain, model] = twins<nn::Transformer>(config, world);
  for (nn::Transformer* each : {plain.get(), model.get()}) {
    manual_seed(5);
    for (const NamedParameter& p : each->named_parameters())
      if (p.slot->ndim() == 2) normal_(p.slot->detach(), 0, 0.3);
  }
  co_await parallelize_module(*model, mesh, nn::transformer_plan(sequence_parallel));
  AdamW reference(plain->parameters(), {.lr = 1e-3}), optimizer(model->parameters(), {.lr = 1e-3});
  for (int step = 0; step < 4; ++step) {
    const Tensor ids = integers(world, Shape{2, s.seq - step % 2}, s.vocab);
    const Tensor targets = integers(world, Shape{2, s.seq - step % 2}, s.vocab - 1);
    const Tensor want_logits = co_await plain->forward(ids);
    const Tensor want = co_await loss_parallel_cross_entropy(want_logits, targets);
    co_await backward(want);
    const Tensor want_norm = co_await clip_grad_norm(plain->parameters(), 1.0);
    co_await reference.step();
    reference.zero_grad();
    const Tensor logits = co_await model->forward(ids);
    EXPECT_EQ(logits.layout(), Layout(Shard(2)));
    const Tensor loss = co_await loss_parallel_cross_entropy(logits, targets);
    co_await backward(loss);
    const Tensor norm = co_await clip_grad_norm(model->parameters(), 1.0);
    co_await optimizer.step();
    optimizer.zero_grad();
    EXPECT_NEAR(loss.item(), want.item(), 1e-10 * std::abs(want.item()));
    EXPECT_NEAR(norm.item(), want_norm.item(), 1e-10 * want_norm.item());
  }
  for (const NamedParameter& p : model->named_parameters())
    expect_close(*p.slot, plain->parameter(p.name), 1e-9);
}

TEST(Training, AnMlpCutByColumnsAndRowsEqualsOneDevice) {  // A103
  for (const int ranks : {1, 2, 3, 4})
    on_ranks(ranks, [](World& world) -> Task<void> {
      const DeviceMesh mesh = line(world);
      for (const bool sequence : {false, true}) {
        auto [plain, model] = twins<Mlp>(world);
        const Placement outside = sequence ? Shard(0) : Replicate();
        ParallelPlan plan;
        plan["net1"] = ColwiseParallel{.input_layouts = outside};
        plan["net2"] = RowwiseParallel{.output_layouts = outside};
        co_await parallelize_module(*model, mesh, plan);
        SGD reference(plain->parameters(), {.lr = 0.05}),
            optimizer(model->parameters(), {.lr = 0.05});
        for (int step = 0; step < 3; ++step) {
          const Tensor x = random(world, Shape{12, 10});
          const Tensor y = co_await plain->forward(x);
          const Tensor want = sum(mul(y, y));
          co_await backward(want);
          co_await reference.step();
          reference.zero_grad();
          CountingObserver counter(world);
          const Tensor mine = sequence ? part(world, x, 0) : x;
          const Tensor z = co_await model->forward(mine);
          const Tensor loss = sum(mul(z, z));
          co_await backward(loss);
          const Issued issued = take(counter);
          const Issued want_issued = world.size() == 1 ? Issued{}
                                     : sequence ? Issued{.all_gather = 2, .reduce_scatter = 1}
                                                : Issued{.all_reduce = 1};
          EXPECT_EQ(issued, want_issued);
          co_await optimizer.step();
          optimizer.zero_grad();
          expect_close(sequence ? Tensor(from_local(z.detach(), mesh, Shard(0))) : z, y);
        }
        for (const NamedParameter& p : model->named_parameters())
          expect_close(*p.slot, plain->parameter(p.name));
      }
    });
}

TEST(Training, ATransformerEqualsOneDeviceOnAnyNumberOfRanksAndUnevenSizes) {
  for (const int ranks : {1, 2, 3, 4})
    on_ranks(ranks, [](World& world) -> Task<void> {
      for (const bool sequence_parallel : {false, true}) {
        // 12 heads on 1..4 ranks; ffn 20, vocab 11 and seq 7 are uneven.
        co_await train_transformer(world, Shapes{12, 12, 24, 20, 11, 7}, sequence_parallel);
      }
    });
}

TEST(Training, GroupedHeadsEqualOneDevice) {
  for (const int ranks : {2, 4})
    on_ranks(ranks, [](World& world) -> Task<void> {
      co_await train_transformer(world, Shapes{8, 4, 32, 24, 16, 6}, true);
    });
}

}  // namespace
}  // namespace coshard::testing
