// Styles whose linear layers overlap: losses and gradients as without, and what runs under what.
#include <coshard/simulate.h>
#include "tests/styles/support.h"
#include "tests/support/hidden_products.h"
#include "tests/support/seeds.h"

namespace coshard::testing {
namespace {

struct Kind {
  bool sequence_parallel = false, recomputes = false;
};

// One training step.
struct Stepped {
  double loss = 0;
  std::vector<std::vector<double>> gradients;
  Issued forward, backward;
};
Task<Stepped> step_of(World& world, Module& model, Tensor tokens) {
  CountingObserver counter(world);
  const Tensor logits = co_await model.forward(tokens);
  Stepped stepped;
  const Tensor loss = co_await loss_parallel_cross_entropy(logits, tokens);
  stepped.forward = take(counter);
  stepped.loss = full_tensor(loss.detach()).item();
  take(counter);
  co_await backward(loss);
  stepped.backward = take(counter);
  for (const Tensor& p : model.parameters())
    stepped.gradients.push_back(
        (p.grad().is_distributed() ? full_tensor(p.grad()) : p.grad()).to_vector());
  co_return stepped;
}

Task<Stepped> step_of_transformer(World& world, Kind kind, Overlap overlap) {
  manual_seed(5);
  nn::TransformerConfig config = tiny_transformer();
  config.dtype = DType::F64;
  nn::Transformer model(config, world);
  const ParallelizeOptions options{.overlap = overlap};
  const ParallelPlan plan = nn::transformer_plan(kind.sequence_parallel);
  Task<void> cut = parallelize_module(model, line(world), plan, options);
  co_await std::move(cut);
  for (std::size_t i = 0; i < model.layers.size(); ++i)
    model.layers[i].set_recompute(kind.recomputes);
  Task<Stepped> step = step_of(world, model, integers(world, Shape{2, config.seq}, config.vocab));
  co_return co_await std::move(step);
}

Task<Stepped> step_of_llama(World& world, Kind kind, Overlap overlap) {
  manual_seed(6);
  nn::CausalLMConfig config = small_llama();
  config.vocab_size = 24;
  nn::CausalLM model(config, world);
  const ParallelizeOptions options{.overlap = overlap};
  const ParallelPlan plan = nn::causal_lm_plan(kind.sequence_parallel);
  Task<void> cut = parallelize_module(model, line(world), plan, options);
  co_await std::move(cut);
  for (std::size_t i = 0; i < model.model.layers.size(); ++i)
    model.model.layers[i].set_recompute(kind.recomputes);
  // 7 positions: shards are uneven.
  Task<Stepped> step = step_of(world, model, integers(world, Shape{2, 7}, config.vocab_size));
  co_return co_await std::move(step);
}

void expect_same_step(const Stepped& got, const Stepped& want) {
  EXPECT_NEAR(got.loss, want.loss, 1e-12);
  ASSERT_EQ(got.gradients.size(), want.gradients.size());
  for (std::size_t p = 0; p < want.gradients.size(); ++p)
    for (std::size_t i = 0; i < want.gradients[p].size(); ++i)
      ASSERT_NEAR(got.gradients[p][i], want.gradients[p][i], 1e-12) << "parameter " << p;
}

// Of so many reductions by layers that overlap: each reduce_scatter has become all_to_alls, each
// all_reduce two.
void expect_issued(const Issued& got, const Issued& plain, Kind kind, int reductions, int ranks) {
  EXPECT_EQ(got.all_gather, plain.all_gather);
  EXPECT_EQ(got.reduce_scatter, plain.reduce_scatter - (kind.sequence_parallel ? reductions : 0));
  EXPECT_EQ(got.other, plain.other + (kind.sequence_parallel ? reductions * (ranks - 1) : 0));
  EXPECT_EQ(got.all_reduce, plain.all_reduce + (kind.sequence_parallel ? 0 : reductions));
}

TEST(OverlappedStyles, TrainATransformerAsThePlainOnesDo) {
  for (const int ranks : {2, 4})
    for (const bool sequence_parallel : {false, true})
      on_ranks(ranks, [sequence_parallel](World& world) -> Task<void> {
        const Kind kind{sequence_parallel};
        const Stepped plain = co_await step_of_transformer(world, kind, Overlap::Off);
        const Stepped overlapped = co_await step_of_transformer(world, kind, Overlap::Always);
        expect_same_step(overlapped, plain);
        // Of two layers' attention and mlp, in backward of the head too.
        expect_issued(overlapped.forward, plain.forward, kind, 4, world.size());
        expect_issued(overlapped.backward, plain.backward, kind, 5, world.size());
      });
}

TEST(OverlappedStyles, TrainALlamaAsThePlainOnesDo) {
  for (const int ranks : {2, 4})
    for (const bool sequence_parallel : {false, true})
      on_ranks(ranks, [sequence_parallel](World& world) -> Task<void> {
        const Kind kind{sequence_parallel};
        const Stepped plain = co_await step_of_llama(world, kind, Overlap::Off);
        const Stepped overlapped = co_await step_of_llama(world, kind, Overlap::Always);
        expect_same_step(overlapped, plain);
        expect_issued(overlapped.forward, plain.forward, kind, 4, world.size());
        expect_issued(overlapped.backward, plain.backward, kind, 5, world.size());
      });
}

TEST(OverlappedStyles, TrainLayersThatAreRecomputed) {
  for (const bool sequence_parallel : {false, true})
    on_ranks(2, [sequence_parallel](World& world) -> Task<void> {
      const Kind kind{sequence_parallel, true};
      const Stepped plain = co_await step_of_transformer(world, kind, Overlap::Off);
      const Stepped overlapped = co_await step_of_transformer(world, kind, Overlap::Always);
      expect_same_step(overlapped, plain);
      expect_issued(overlapped.backward, plain.backward, kind, 5, world.size());
      const Stepped llama = co_await step_of_llama(world, kind, Overlap::Off);
      const Stepped other = co_await step_of_llama(world, kind, Overlap::Always);
      expect_same_step(other, llama);
    });
}

// Any interleaving of ranks and any delay: the same step.
TEST(OverlappedStyles, TrainInEverySimulation) {
  WorldOptions options;
  options.link = parse_link("50us,1GB/s");
  const std::uint64_t first = testing::first_seed();
  const std::uint64_t count = testing::number_of("--seeds", "COSHARD_SEEDS", 20);
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Kind kind{seed % 2 == 0, seed % 4 >= 2};
    options.ranks = seed % 8 < 4 ? 2 : 4;
    const auto program = [kind](World& world) -> Task<void> {
      const Stepped plain = co_await step_of_llama(world, kind, Overlap::Off);
      const Stepped overlapped = co_await step_of_llama(world, kind, Overlap::Always);
      expect_same_step(overlapped, plain);
    };
    EXPECT_NO_THROW(simulate(options, program, seed)) << testing::how_to_replay(seed);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(OverlappedStyles, TakeTheirOwnChoiceBeforeThatOfThePlan) {
  on_ranks(2, [](World& world) -> Task<void> {
    Mlp mlp(world);
    ParallelPlan plan;
    plan["net1"] = ColwiseParallel{};
    plan["net2"] = RowwiseParallel{.overlap = Overlap::Off};
    const ParallelizeOptions options{.overlap = Overlap::Always};
    co_await parallelize_module(mlp, line(world), plan, options);
    EXPECT_EQ(mlp.net1.overlapping().overlap, Overlap::Always);
    EXPECT_EQ(mlp.net2.overlapping().overlap, Overlap::Off);
    EXPECT_EQ(mlp.net2.overlapping().target, Placement(Replicate()));
    EXPECT_CONTAINS(str_cat(RowwiseParallel{.overlap = Overlap::Off}), "overlap=off");
  });
}

TEST(OverlappedStyles, LeaveAModuleAsItWasIfThePlanFails) {
  on_ranks(2, [](World& world) -> Task<void> {
    Mlp mlp(world);
    ParallelPlan plan;
    plan["net1"] = ColwiseParallel{};
    plan["net2"] = SequenceParallel{};
    plan[""] = ColwiseParallel{};
    const ParallelizeOptions options{.overlap = Overlap::Always};
    const std::string text = co_await error_of(parallelize_module(mlp, line(world), plan, options));
    EXPECT_EQ(mlp.net1.overlapping().overlap, Overlap::Off) << text;
  });
}

Task<int> hidden_products(World& world, Placement input, Placement output, Overlap overlap) {
  Mlp mlp(world, 64, 64, 64);
  ParallelPlan plan;
  plan["net1"] = ColwiseParallel{.input_layouts = input};
  plan["net2"] = RowwiseParallel{.output_layouts = output};
  const ParallelizeOptions options{.overlap = overlap};
  co_await parallelize_module(mlp, line(world), plan, options);
  const NoGradGuard no_grad;
  const Tensor x = random(world, Shape{32, 64});
  const HiddenProducts hidden(world);
  const Tensor y = co_await mlp.forward(x);
  co_return hidden.count();
}

TEST(OverlappedStyles, ComputeUnderTheGatherBeforeThemAndTheReductionAfterThem) {
  on_slow_ranks(2, [](World& world) -> Task<void> {
    // net1: the own shard under the gather. net2: the own rows under what is sent.
    EXPECT_EQ(co_await hidden_products(world, Shard(0), Shard(0), Overlap::Always), 2);
    EXPECT_EQ(co_await hidden_products(world, Replicate(), Replicate(), Overlap::Always), 1);
    // The control: nothing runs under a collective.
    EXPECT_EQ(co_await hidden_products(world, Shard(0), Shard(0), Overlap::Off), 0);
    EXPECT_EQ(co_await hidden_products(world, Replicate(), Replicate(), Overlap::Off), 0);
  });
}

Task<int> hidden_in_backward(World& world, bool recomputes, Overlap overlap) {
  Mlp mlp(world, 64, 64, 64);
  ParallelPlan plan;
  plan["net1"] = ColwiseParallel{.input_layouts = Shard(0)};
  plan["net2"] = RowwiseParallel{.output_layouts = Shard(0)};
  const ParallelizeOptions options{.overlap = overlap};
  co_await parallelize_module(mlp, line(world), plan, options);
  mlp.set_recompute(recomputes);
  Tensor x = random(world, Shape{32, 64});
  x.set_requires_grad(true);
  const Tensor y = co_await mlp.forward(x);
  const Tensor loss = sum(mul(y, y));
  const HiddenProducts hidden(world);
  co_await backward(loss);
  co_return hidden.count();
}

TEST(OverlappedStyles, ComputeUnderTheCollectivesOfBackward) {
  on_slow_ranks(2, [](World& world) -> Task<void> {
    // The weight gradients under the reduction of the first layer's; dY's own shard under its
    // gather, and the product of the own rows under the reduction. Recomputed: x's own shard too.
    EXPECT_EQ(co_await hidden_in_backward(world, false, Overlap::Off), 2);
    EXPECT_EQ(co_await hidden_in_backward(world, false, Overlap::Always), 4);
    EXPECT_EQ(co_await hidden_in_backward(world, true, Overlap::Off), 2);
    EXPECT_EQ(co_await hidden_in_backward(world, true, Overlap::Always), 5);
  });
}

TEST(OverlappedStyles, ArePlainOnALinkThatCostsMoreByPieces) {
  on_slow_ranks(2, [](World& world) -> Task<void> {  // 30 ms for each piece
    EXPECT_EQ(co_await hidden_products(world, Replicate(), Replicate(), Overlap::Auto), 0);
  });
}

}  // namespace
}  // namespace coshard::testing
