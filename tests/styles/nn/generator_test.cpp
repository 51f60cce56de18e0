#include <coshard/styles/nn/generator.h>

#include "tests/runtime/coro/allocations.h"
#include "tests/styles/nn/generated.h"

namespace coshard::testing {
namespace {

// Texts of a small Llama on `ranks` ranks, the same on all of them.
std::vector<Tokens> texts_on(int ranks, const nn::GenerationOptions& options, bool sequence = false,
                             std::int64_t first = 0, std::size_t count = 3) {
  std::vector<Tokens> texts;
  on_ranks(ranks, [&](World& world) -> Task<void> {
    nn::CausalLMConfig config = speaking_llama();
    config.num_attention_heads = 12, config.num_key_value_heads = 12, config.head_dim = 2;
    nn::CausalLM model(config, world);
    Task<void> cut = parallelize_module(model, line(world), model.plan(sequence));
    co_await std::move(cut);
    nn::Generator generator(model, options);
    const std::vector<Tokens> all = some_prompts(5, config.vocab_size, 1);
    const std::vector<Tokens> prompts(all.begin() + first,
                                      all.begin() + first + std::ptrdiff_t(count));
    Task<std::vector<Tokens>> run = generated(generator, prompts, first);
    const std::vector<Tokens> made = co_await std::move(run);
    if (world.rank() == 0) texts = made;
  });
  return texts;
}

TEST(Generator, GreedyTextIsThatWithoutACache) {
  on_ranks(2, [](World& world) -> Task<void> {
    for (const std::int64_t window : {0, 3}) {
      nn::CausalLMConfig config = speaking_llama();
      config.sliding_window = window;
      nn::CausalLM model(config, world);
      Task<void> cut = parallelize_module(model, line(world), model.plan());
      co_await std::move(cut);
      nn::Generator generator(model, {.max_new_tokens = 12});
      for (unsigned seed = 0; seed < 3; ++seed) {
        const std::vector<Tokens> prompts = some_prompts(1 + seed * 2, config.vocab_size, seed);
        Task<std::vector<Tokens>> run = generated(generator, prompts);
        const std::vector<Tokens> made = co_await std::move(run);
        for (std::size_t i = 0; i < prompts.size(); ++i) {
          Task<Tokens> alone = greedy_without_cache(world, model, prompts[i], 12);
          EXPECT_EQ(made[i], co_await std::move(alone)) << "prompt " << i;
        }
      }
    }
  });
}

TEST(Generator, TextIsTheSameOnAnyNumberOfRanks) {
  const nn::GenerationOptions kinds[] = {{.max_new_tokens = 16},
                                         {.max_new_tokens = 16, .temperature = 0.9, .seed = 4},
                                         {.max_new_tokens = 16, .temperature = 1, .top_k = 5},
                                         {.max_new_tokens = 16, .temperature = 1.3, .top_p = 0.8},
                                         {.max_new_tokens = 16,
                                          .temperature = 0.8,
                                          .top_k = 20,
                                          .top_p = 0.7,
                                          .repetition_penalty = 1.3}};
  for (const nn::GenerationOptions& options : kinds) {
    const std::vector<Tokens> want = texts_on(1, options);
    for (const int ranks : {2, 3, 4}) EXPECT_EQ(texts_on(ranks, options), want) << ranks;
    EXPECT_EQ(texts_on(2, options, true), want) << "sequence parallel";
  }
}

TEST(Generator, TextDependsOnSeedsButNotOnBatches) {
  const nn::GenerationOptions options{.max_new_tokens = 16, .temperature = 1, .seed = 1};
  const std::vector<Tokens> want = texts_on(1, options, false, 0, 5);
  nn::GenerationOptions other = options;
  other.seed = 2;
  EXPECT_NE(texts_on(1, other, false, 0, 5), want);
  for (std::int64_t i = 0; i < 5; ++i)
    EXPECT_EQ(texts_on(1, options, false, i, 1)[0], want[std::size_t(i)]);
}

TEST(Generator, ARowEndsAtAStopToken) {
  const std::vector<Tokens> whole = texts_on(1, {.max_new_tokens = 16});
  const std::int64_t stop = whole[0][5];
  const std::vector<Tokens> cut = texts_on(2, {.max_new_tokens = 16, .eos_token_ids = {99, stop}});
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const auto end = std::find(whole[i].begin(), whole[i].end(), stop);
    const Tokens want(whole[i].begin(), end == whole[i].end() ? end : end + 1);
    EXPECT_EQ(cut[i], want);
  }
}

TEST(Generator, ShardedLogitsMoveEightBytesPerPrompt) {
  on_ranks(2, [](World& world) -> Task<void> {
    nn::CausalLM model(speaking_llama(), world);
    Task<void> cut = parallelize_module(model, line(world), model.plan());
    co_await std::move(cut);
    nn::Generator generator(model, {.max_new_tokens = 3});
    Task<void> start = generator.start({{1, 2, 3}, {4}});
    co_await std::move(start);
    CountingObserver counter(world);
    co_await generator.next();
    EXPECT_EQ(take(counter), Issued{.all_reduce = 1});
    co_await generator.next();
    EXPECT_EQ(take(counter), Issued{.all_reduce = 6});  // 5 of the forward
  });
}

TEST(Generator, GPT2WritesWhatItWritesWithoutACache) {
  on_ranks(2, [](World& world) -> Task<void> {
    nn::GPT2Config config;
    config.vocab_size = 37, config.n_positions = 20, config.n_embd = 16;
    config.n_layer = 2, config.n_head = 4, config.initializer_range = 0.5;
    config.dtype = DType::F64;
    for (const bool sequence : {false, true}) {
      nn::GPT2 model(config, world);
      Task<void> cut = parallelize_module(model, line(world), model.plan(sequence));
      co_await std::move(cut);
      model.train(false);
      nn::Generator generator(model, {.max_new_tokens = 12});
      const std::vector<Tokens> prompts = some_prompts(3, 37, 5);
      Task<std::vector<Tokens>> run = generated(generator, prompts);
      const std::vector<Tokens> made = co_await std::move(run);
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        Task<Tokens> alone = greedy_without_cache(world, model, prompts[i], 12);
        EXPECT_EQ(made[i], co_await std::move(alone)) << "prompt " << i;
      }
      Task<void> start = generator.start({{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}});
      const std::string error = co_await refusal(std::move(start));
      EXPECT_CONTAINS(error, "take 21 positions, but the model has 20");
    }
  });
}

TEST(Generator, HeadsThatDoNotDivideGiveTheSameText) {
  for (const auto& [heads, key_heads] : {std::pair{9, 3}, {8, 2}}) {
    std::vector<Tokens> want;
    for (const int ranks : {1, 2, 3, 4}) {
      std::vector<Tokens> made;
      on_ranks(ranks, [&, h = heads, k = key_heads](World& world) -> Task<void> {
        nn::CausalLMConfig config = speaking_llama();
        config.num_attention_heads = h, config.num_key_value_heads = k, config.head_dim = 2;
        nn::CausalLM model(config, world);
        Task<void> cut = parallelize_module(model, line(world), model.plan());
        co_await std::move(cut);
        nn::Generator generator(model, {.max_new_tokens = 12});
        Task<std::vector<Tokens>> run = generated(generator, some_prompts(3, 37, 2));
        const std::vector<Tokens> texts = co_await std::move(run);
        if (world.rank() == 0) made = texts;
      });
      if (ranks == 1) want = made;
      EXPECT_EQ(made, want) << heads << " heads on " << ranks << " ranks";
    }
  }
}

TEST(Generator, ACacheIsUsedAgainByShorterPrompts) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::CausalLM model(speaking_llama(), world);
    nn::Generator generator(model, {.max_new_tokens = 5, .cache_capacity = 12});
    Task<std::vector<Tokens>> first = generated(generator, {{1, 2, 3, 4, 5, 6, 7, 8}});
    co_await std::move(first);
    const std::int64_t bytes = generator.cache()->bytes();
    Task<std::vector<Tokens>> second = generated(generator, {{1, 2}});
    const std::vector<Tokens> got = co_await std::move(second);
    EXPECT_EQ(generator.cache()->bytes(), bytes);
    EXPECT_EQ(bytes, 2 * 2 * 4 * 12 * 2 * 8);
    Task<Tokens> alone = greedy_without_cache(world, model, {1, 2}, 5);
    EXPECT_EQ(got[0], co_await std::move(alone));
  });
}

TEST(Generator, RefusesBadPromptsBeforeTheFirstToken) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::CausalLM model(speaking_llama(), world);
    nn::Generator generator(model, {.max_new_tokens = 5, .cache_capacity = 12});
    const std::string early = co_await refusal(generator.next());
    EXPECT_CONTAINS(early, "before start");
    const std::pair<std::vector<Tokens>, const char*> bad[] = {
        {{}, "no prompt"},
        {{{1}, {}}, "prompt 1 has no tokens"},
        {{{1, -2}}, "token -2"},
        {{{1, 37}}, "token 37"},
        {{{1, 2, 3, 4, 5, 6, 7, 8, 9}}, "take 13 slots of the cache, which has 12"}};
    for (const auto& [prompts, part] : bad) {
      Task<void> start = generator.start(prompts);
      const std::string error = co_await refusal(std::move(start));
      EXPECT_CONTAINS(error, part);
    }
  });
}

TEST(Generator, MaxLengthCountsTheLongestPrompt) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::CausalLM model(speaking_llama(), world);
    nn::Generator generator(model, {.max_new_tokens = 30, .max_length = 7});
    const std::vector<Tokens> prompts = {{1, 2, 3}, {4}}, long_one = {Tokens(7, 1)};
    Task<void> start = generator.start(prompts);
    co_await std::move(start);
    int steps = 0;
    while (true) {
      auto next = generator.next();
      const auto tokens = co_await std::move(next);
      if (!tokens) break;
      ++steps;
    }
    EXPECT_EQ(steps, 4);
    const std::string error = co_await refusal(generator.start(long_one));
    EXPECT_CONTAINS(error, "max_length 7");
  });
}

TEST(Generator, RefusesOptionsOutsideTheirRanges) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::CausalLM model(speaking_llama(), world);
    const std::pair<nn::GenerationOptions, const char*> bad[] = {
        {{.max_new_tokens = 0}, "max_new_tokens 0"},
        {{.max_new_tokens = INT64_MAX}, "max_new_tokens 9223372036854775807"},
        {{.temperature = -1}, "temperature -1"},
        {{.temperature = NAN}, "temperature nan"},
        {{.max_length = -1}, "max_length -1"},
        {{.top_k = -1}, "top_k -1"},
        {{.top_p = 0}, "top_p 0"},
        {{.top_p = 1.5}, "top_p 1.5"},
        {{.repetition_penalty = 0}, "penalty 0"},
        {{.cache_capacity = -1}, "capacity -1"}};
    for (const auto& [options, part] : bad)
      EXPECT_CONTAINS(error_of([&, given = options] { nn::Generator{model, given}; }), part);
    co_return;
  });
}

TEST(Generator, NamesThePromptWhoseLogitsAreNaN) {
  on_ranks(2, [](World& world) -> Task<void> {
    nn::CausalLM model(speaking_llama(), world);
    Task<void> cut = parallelize_module(model, line(world), model.plan());
    co_await std::move(cut);
    {
      const NoGradGuard no_grad;
      fill_(model.model.norm.weight, NAN);
    }
    nn::Generator generator(model, {});
    Task<void> start = generator.start({{1, 2}});
    co_await std::move(start);
    const std::string error = co_await refusal(generator.next());
    EXPECT_CONTAINS(error, "prompt 0 at step 0");
  });
}

TEST(Generator, TakesNoTensorMemoryPerToken) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::CausalLM model(speaking_llama(), world);
    nn::Generator generator(model, {.max_new_tokens = 40});
    Task<void> start = generator.start({{1, 2, 3}, {4}});
    co_await std::move(start);
    for (int i = 0; i < 3; ++i) co_await generator.next();
    const MemoryStats before = world.device()->memory();
    std::vector<long> allocations;
    for (int i = 0; i < 36; ++i) {
      const long since = testing::allocations();
      co_await generator.next();
      allocations.push_back(testing::allocations() - since);
    }
    const MemoryStats after = world.device()->memory();
    EXPECT_EQ(after.in_use + after.cached, before.in_use + before.cached);
    EXPECT_EQ(after.peak, before.peak);
    if (!testing::kCountsAllocations) co_return;
    // Lists of modules' inputs and outputs: as many for each token, of 2 layers.
    std::ranges::sort(allocations);
    EXPECT_LE(allocations[18], 2 * 24);
  });
}

}  // namespace
}  // namespace coshard::testing
