// Forecasts against closed forms: per block of a Llama, from the difference of two depths.
#include "tools/simulate/forecast.h"

#include <gtest/gtest.h>

#include <coshard/runtime/error.h>
#include "tools/simulate/models.h"

namespace coshard::tools {
namespace {

struct Case {
  std::string model;
  std::int64_t tokens;
  int tp;
};

LlamaRun run_of(const Case& c, int layers, Overlap overlap) {
  LlamaRun run;
  run.config = llama_config(c.model);
  run.config.num_hidden_layers = layers;
  run.mesh = {{"tp", c.tp}};
  run.links = links_of(run.mesh, given_links(run.mesh, "365GB/s", "ideal"), 8);
  run.seq = c.tokens;
  run.overlap = overlap;
  return run;
}

Forecast ideal(const LlamaRun& run) { return forecast_of(run, processor_of(gpu_figures("ideal"))); }

// Of one block, in ms.
struct Block {
  double forward, backward;
};
Block block_of(const Case& c, Overlap overlap) {
  const Forecast two = ideal(run_of(c, 2, overlap)), four = ideal(run_of(c, 4, overlap));
  return {static_cast<double>(four.forward - two.forward) * 0.5e-6,
          static_cast<double>(four.backward - two.backward) * 0.5e-6};
}

// In ms: products, attention, and one collective of a block, at 650 Tflop/s of products, 0.6 of that
// of attention, and 365 GB/s.
struct Closed {
  explicit Closed(const Case& c) {
    const nn::CausalLMConfig m = llama_config(c.model);
    const auto d = static_cast<double>(m.hidden_size), t = static_cast<double>(c.tokens);
    const double heads = static_cast<double>(m.num_attention_heads) / c.tp;
    const double head = d / static_cast<double>(m.num_attention_heads);
    const double qkv = d + 2 * head * static_cast<double>(m.num_key_value_heads);
    const double weights = d * (qkv + d + 3 * static_cast<double>(m.intermediate_size));
    products = 2 * t * weights / c.tp / 650e12 * 1e3;
    attention = 2 * heads * t * t * head / 390e12 * 1e3;
    collective = (c.tp - 1.0) / c.tp * t * d * 2 / 365e9 * 1e3;
  }
  double products, attention, collective;
};

const Case kLarge{"llama-70b", 8192, 8};

TEST(Forecast, ABlockWithoutOverlapTakesItsProductsItsAttentionAndFourCollectives) {
  const std::pair<Case, double> cases[] = {{kLarge, 4.335},
                                           {{"llama-70b", 1024, 8}, 0.503},
                                           {{"llama-70b", 8192, 4}, 7.200},
                                           {{"llama-8b", 8192, 8}, 1.507}};
  for (const auto& [c, published] : cases) {
    const Closed closed(c);
    const double serial = closed.products + closed.attention + 4 * closed.collective;
    EXPECT_NEAR(serial, published, 0.002) << c.model << ' ' << c.tokens;
    EXPECT_NEAR(block_of(c, Overlap::Off).forward, serial, 0.001 * serial) << c.model;
  }
}

// Every gradient of an output is gathered, which nothing hides; the sums of the inputs' gradients run
// under those of the weights, and the inputs were kept.
TEST(Forecast, ABackwardBlockWithoutOverlapShowsItsTwoGathers) {
  const Closed closed(kLarge);
  const double serial = 2 * closed.products + 2.5 * closed.attention + 2 * closed.collective;
  EXPECT_NEAR(block_of(kLarge, Overlap::Off).backward, serial, 0.03 * serial);
}

// The bounds per operator: attention, and the longer one of each product and its collective.
TEST(Forecast, AnOverlappedBlockIsWithin5PercentOfItsBoundPerOperator) {
  const Block block = block_of(kLarge, Overlap::Auto);
  EXPECT_GT(block.forward, 0.999 * 3.216);
  EXPECT_LT(block.forward, 1.05 * 3.216);
  EXPECT_LT(block.backward, 1.05 * 6.498);
}

// Also where a gather by rounds, or many small products, would take longer than they hide.
TEST(Forecast, LayersThatOverlapAreNoSlowerThanThoseThatDoNot) {
  for (const std::int64_t tokens : {512, 1024})
    for (const std::string link : {"3us,20GB/s", "5us,50GB/s", "10us,100GB/s", "3us,300GB/s"}) {
      LlamaRun run = run_of({"llama-8b", tokens, 8}, 2, Overlap::Auto);
      run.links = links_of(run.mesh, given_links(run.mesh, link, "h100"), 8);
      const ProcessorModel processor = processor_of(gpu_figures("h100"));
      const auto overlapped = static_cast<double>(forecast_of(run, processor).step);
      run.overlap = Overlap::Off;
      const auto plain = static_cast<double>(forecast_of(run, processor).step);
      EXPECT_LE(overlapped, 1.01 * plain) << tokens << " tokens, " << link;
    }
}

// Across operators the bound is what is computed: an all_reduce runs under the other half.
TEST(Forecast, AWovenBlockIsWithin5PercentOfItsBoundAcrossOperators) {
  const auto block = [](int weave) {
    LlamaRun two = run_of(kLarge, 2, Overlap::Auto);
    two.batch = 2;
    two.sequence_parallel = false;
    two.weave = weave;
    LlamaRun four = two;
    four.config.num_hidden_layers = 4;
    const Forecast a = ideal(two), b = ideal(four);
    return Block{static_cast<double>(b.forward - a.forward) * 0.25e-6,  // of one sequence
                 static_cast<double>(b.backward - a.backward) * 0.25e-6};
  };
  const Block woven = block(2), plain = block(1);
  EXPECT_GT(woven.forward, 0.999 * 3.048);
  EXPECT_LT(woven.forward, 1.05 * 3.048);
  EXPECT_GT(woven.backward, 0.999 * 6.273);
  EXPECT_LT(woven.backward, 1.05 * 6.273);
  EXPECT_GT(plain.forward, 1.15 * woven.forward) << "an all_reduce waits for all its product";
}

TEST(Forecast, AWeaveOfMorePartsThanSequencesNamesBoth) {
  LlamaRun run = run_of(kLarge, 2, Overlap::Auto);
  run.batch = 3;
  run.weave = 4;
  try {
    check(run);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "--weave 4 is more than the 3 sequences of a rank (--batch 3, dp=1)");
  }
}

TEST(Forecast, WhatIsNotComputeIsExposedCommunication) {
  for (const Overlap overlap : {Overlap::Off, Overlap::Auto}) {
    const Forecast f = ideal(run_of(kLarge, 2, overlap));
    EXPECT_EQ(f.compute + f.exposed, f.step);
    EXPECT_EQ(f.forward + f.backward + f.optimizer, f.step);
  }
}

TEST(Forecast, ModulesContainTheirPartsAndAddUpToTheStep) {
  const Forecast f = ideal(run_of(kLarge, 2, Overlap::Off));
  const ModuleTimes& layer = f.modules.at("model.layers.*");
  const ModuleTimes& attention = f.modules.at("model.layers.*.self_attn");
  const ModuleTimes& mlp = f.modules.at("model.layers.*.mlp");
  EXPECT_EQ(layer.forward.total(), attention.forward.total() + mlp.forward.total());
  const Closed closed(kLarge);
  EXPECT_NEAR(static_cast<double>(attention.forward.products + mlp.forward.products) * 1e-6,
              2 * (closed.products + closed.attention), 0.01);
  EXPECT_EQ(f.modules.at("model.layers.*.mlp.down_proj").forward.exposed / 2,
            f.modules.at("model.layers.*.self_attn.o_proj").forward.exposed / 2);
}

TEST(Forecast, MemoryIsWhatAHandCounts) {
  const Forecast two = ideal(run_of(kLarge, 2, Overlap::Off));
  const Forecast four = ideal(run_of(kLarge, 4, Overlap::Off));
  const double d = 8192, f = 28672, t = 8192;
  const double weights = (d * 10240 + d * d + 3 * d * f) / 8 + 2 * d;
  EXPECT_EQ(four.memory.parameters - two.memory.parameters, 2 * 2 * weights);
  EXPECT_EQ(four.memory.gradients - two.memory.gradients, 2 * 2 * weights);
  EXPECT_NEAR(four.memory.optimizer - two.memory.optimizer, 2 * 12 * weights, 1e-4 * weights);
  // Saved: the inputs of both norms (sharded), of the projections (whole); q, k, v and what attention
  // gives; gate, up and their product. Statistics of norms and attention are small.
  const double saved = 2 * (2 * t * d / 8 + 2 * t * d + t * (1024 + 256 + 1024) + 3 * t * f / 8);
  EXPECT_NEAR((four.memory.activations - two.memory.activations) / 2, saved, 0.03 * saved);
}

TEST(Forecast, RecomputedLayersSaveTheirInputsAndComputeForwardTwice) {
  LlamaRun two = run_of(kLarge, 2, Overlap::Off), four = run_of(kLarge, 4, Overlap::Off);
  two.recompute = four.recompute = true;
  const Forecast a = ideal(two), b = ideal(four);
  EXPECT_NEAR((b.memory.activations - a.memory.activations) / 2, 2.0 * 8192 * 8192 / 8, 1e6);
  const Closed closed(kLarge);
  const double compute = 4 * (closed.products + closed.attention) +
                         2 * (2 * closed.products + 2.5 * closed.attention) - 2 * closed.attention -
                         2 * closed.products;
  EXPECT_GT(static_cast<double>(b.compute - a.compute) * 1e-6, compute);
}

TEST(Forecast, DataParallelGradientsTakeTheirTimeOnTheLink) {
  for (const Overlap overlap : {Overlap::Off, Overlap::Auto}) {  // in one bucket, and in many
    LlamaRun run = run_of(kLarge, 2, overlap);
    run.mesh = {{"dp", 32}, {"tp", 8}};
    run.links = links_of(run.mesh, given_links(run.mesh, "tp=365GB/s,dp=45GB/s", "ideal"), 8);
    run.batch = 32;
    const Forecast f = ideal(run);
    const auto found = f.collectives.find({"dp", "all_reduce gradients"});
    ASSERT_NE(found, f.collectives.end());
    const double ms = 2 * 31.0 / 32 * f.memory.gradients / 45e9 * 1e3;
    EXPECT_NEAR(static_cast<double>(found->second.in_flight) * 1e-6, ms, 0.001 * ms) << overlap;
  }
}

// Within the time limit of this test.
TEST(Forecast, AMillionRanksCostHardlyMoreThanOne) {
  LlamaRun run = run_of({"llama-8b", 256, 1}, 2, Overlap::Auto);
  run.mesh = {{"dp", 1'000'000}};
  run.links = links_of(run.mesh, given_links(run.mesh, "", "h100"), 8);
  run.batch = 1'000'000;
  const Forecast f = forecast_of(run, processor_of(gpu_figures("h100")));
  EXPECT_GT(f.step, f.compute);
  EXPECT_EQ(f.parameters, 8'030'261'248 - 30 * 218'112'000.0);  // of 32 layers, two
}

TEST(Forecast, AModelThatItsRanksDoNotDivideIsRefused) {
  const auto refused = [](const LlamaRun& run, const std::string& named) {
    try {
      check(run);
      ADD_FAILURE() << "nothing was thrown for " << named;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(named), std::string::npos) << error.what();
    }
  };
  refused(run_of({"llama-70b", 8192, 16}, 2, Overlap::Off),
          "--mesh tp=16: the model's 64 heads and 8 key heads are not divisible by tp=16");
  refused(run_of({"llama-70b", 8190, 8}, 2, Overlap::Off), "--seq 8190 is not divisible by tp=8");
  LlamaRun run = run_of(kLarge, 2, Overlap::Off);
  run.mesh = {{"dp", 3}, {"tp", 8}};
  refused(run, "--batch 1 is not divisible by dp=3");
  run.batch = 600'000;
  refused(run, "--batch 600000 --seq 8192: more than 1000000000 tokens of a rank (dp=3)");
}

}  // namespace
}  // namespace coshard::tools
