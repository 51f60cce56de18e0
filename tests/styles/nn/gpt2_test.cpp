// GPT2: names of Hugging Face, its plans on any number of ranks, older files. What transformers
// computes is in open_model_test.cpp.
#include <coshard/styles/nn/gpt2.h>

#include <filesystem>

#include "tests/dtensor/checkpoint/stored_files.h"
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

nn::GPT2Config small_gpt2() {
  return {.vocab_size = 11,
          .n_positions = 8,
          .n_embd = 20,
          .n_layer = 2,
          .n_head = 5,
          .n_inner = 12,
          .resid_pdrop = 0,
          .embd_pdrop = 0,
          .attn_pdrop = 0,
          .dtype = DType::F64};
}

TEST(GPT2, HasHuggingFacesNamesAndATiedHeadOnce) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::GPT2Config config = small_gpt2();
    config.n_layer = 1;
    nn::GPT2 model(config, world);
    std::vector<std::string> names;
    for (const NamedParameter& p : model.named_parameters()) names.push_back(p.name);
    const std::string block = "transformer.h.0.";
    EXPECT_EQ(names,
              (std::vector<std::string>{
                  "transformer.wte.weight", "transformer.wpe.weight", block + "ln_1.weight",
                  block + "ln_1.bias", block + "attn.c_attn.weight", block + "attn.c_attn.bias",
                  block + "attn.c_proj.weight", block + "attn.c_proj.bias", block + "ln_2.weight",
                  block + "ln_2.bias", block + "mlp.c_fc.weight", block + "mlp.c_fc.bias",
                  block + "mlp.c_proj.weight", block + "mlp.c_proj.bias", "transformer.ln_f.weight",
                  "transformer.ln_f.bias"}));
    EXPECT_EQ(model.lm_head.weight.id(), model.transformer.wte.weight.id());
    EXPECT_EQ(model.blocks().size(), 1U);
    EXPECT_EQ(model.vocab_size(), 11);
    EXPECT_EQ(model.longest_sequence(), 8);
    config.tie_word_embeddings = false;
    nn::GPT2 untied(config, world);
    EXPECT_EQ(untied.named_parameters().size(), names.size() + 1);
    co_return;
  });
}

struct LogitsOfBoth {
  Tensor want, got;
};

// Of a model and of its twin that is cut; dropout draws alike.
Task<LogitsOfBoth> run_both(World& world, nn::GPT2& plain, nn::GPT2& model, bool sequence) {
  Task<void> cut = parallelize_module(model, line(world), model.plan(sequence));
  co_await std::move(cut);
  const Tensor ids = integers(world, Shape{2, 6}, 11);
  LogitsOfBoth both;
  manual_seed(5);
  both.want = co_await plain.forward(ids);
  manual_seed(5);
  both.got = co_await model.forward(ids);
  co_return both;
}

TEST(GPT2, PlansComputeTheSameOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 4})
    for (const bool sequence : {false, true})
      on_ranks(ranks, [=](World& world) -> Task<void> {
        auto [plain, model] = twins<nn::GPT2>(small_gpt2(), world);
        CountingObserver counter(world);
        Task<LogitsOfBoth> running = run_both(world, *plain, *model, sequence);
        const LogitsOfBoth both = co_await std::move(running);
        expect_close(both.got, both.want);
        EXPECT_EQ(both.got.layout(), Layout(Shard(2)));
        const std::int64_t heads = chunk_of(5, world.size(), world.rank()).size;
        const nn::GPT2Attention& attention = model->transformer.h[1].attn;
        EXPECT_EQ(attention.c_attn.weight.local_shape(), (Shape{20, 12 * heads}));
        EXPECT_EQ(attention.c_proj.weight.local_shape(), (Shape{4 * heads, 20}));
        co_await backward(sum(both.want * both.want));
        co_await backward(sum(both.got * both.got));
        for (const NamedParameter& p : model->named_parameters())
          expect_close(p.slot->grad(), plain->parameter(p.name).grad(), 1e-9);
      });
}

TEST(GPT2, DropsTheSameElementsOnAnyNumberOfRanks) {
  for (const bool sequence : {false, true})
    on_ranks(2, [=](World& world) -> Task<void> {
      nn::GPT2Config config = small_gpt2();
      config.resid_pdrop = config.embd_pdrop = 0.25;
      auto [plain, model] = twins<nn::GPT2>(config, world);
      Task<LogitsOfBoth> running = run_both(world, *plain, *model, sequence);
      const LogitsOfBoth both = co_await std::move(running);
      expect_close(both.got, both.want);
      model->train(false);
      const Tensor whole = co_await model->forward(integers(world, Shape{2, 6}, 11));
      EXPECT_NE(full_tensor(whole.detach()).to_vector(), both.want.to_vector());
    });
}

TEST(GPT2, RefusesAttentionDropoutInTrainingAndLongSequences) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::GPT2Config config = small_gpt2();
    config.attn_pdrop = 0.1;
    nn::GPT2 model(config, world);
    std::string text = co_await error_of(discard(model.forward(integers(world, Shape{1, 3}, 11))));
    EXPECT_CONTAINS(text, "attn_pdrop 0.1 is not supported in training");
    model.train(false);
    co_await model.forward(integers(world, Shape{1, 8}, 11));
    text = co_await error_of(discard(model.forward(integers(world, Shape{1, 9}, 11))));
    EXPECT_CONTAINS(text, "n_positions 8");
  });
}

// Names without "transformer.", and masks.
TEST(GPT2, LoadsOlderFiles) {
  const ScratchFolder scratch;
  on_ranks(2, [&](World& world) -> Task<void> {
    auto [made, model] = twins<nn::GPT2>(small_gpt2(), world);
    State older;
    for (const NamedParameter& p : made->named_parameters())
      older.add(p.name.substr(p.name.find('.') + 1), *p.slot);
    older.add("h.1.attn.bias", zeros(world.device(), {1, 1, 8, 8}, DType::Bool));
    older.add("h.1.attn.masked_bias", zeros(world.device(), Shape{}));
    Task<void> saved = save(older, scratch.path("older"));
    co_await std::move(saved);
    for (const NamedParameter& p : model->named_parameters()) zero_(p.slot->detach());
    Task<void> cut = parallelize_module(*model, line(world), model->plan());
    co_await std::move(cut);
    Task<LoadReport> loading = load(*model, scratch.path("older"));
    const LoadReport report = co_await std::move(loading);
    EXPECT_EQ(report.unused, (std::vector<std::string>{"h.1.attn.bias", "h.1.attn.masked_bias"}));
    for (const NamedParameter& p : model->named_parameters())
      expect_close(p.slot->detach(), made->parameter(p.name).detach(), 0);
    older.add("h.1.attn.scale", zeros(world.device(), {1}));
    saved = save(older, scratch.path("other"));
    co_await std::move(saved);
    const std::string text = co_await refusal(load(*model, scratch.path("other")));
    EXPECT_CONTAINS(text, "has 'h.1.attn.scale'");
  });
}

TEST(GPT2, IsSavedWithTheSameBytesFromAnyMesh) {
  const ScratchFolder scratch;
  const auto bytes = [&](const std::string& name) {
    std::ifstream in(scratch.path(name + "/model.safetensors"), std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  for (const auto& [tp, dp] : {std::pair{1, 1}, {2, 1}, {3, 1}, {2, 2}})
    on_ranks(tp * dp, [&, tp = tp, dp = dp](World& world) -> Task<void> {
      manual_seed(3);
      nn::GPT2 model(small_gpt2(), world);
      const DeviceMesh mesh = init_device_mesh(world, {dp, tp}, {"dp", "tp"});
      Task<void> cut = parallelize_module(model, mesh["tp"], model.plan());
      co_await std::move(cut);
      if (dp > 1) {
        for (const auto& block : model.blocks()) fully_shard(*block, mesh["dp"]);
        fully_shard(model, mesh["dp"]);
      }
      const Tensor logits = co_await model.forward(integers(world, Shape{2, 6}, 11));
      co_await backward(sum(logits * logits));
      Task<void> saved = save(model, scratch.path(str_cat(tp, "x", dp)));
      co_await std::move(saved);
    });
  ASSERT_GT(bytes("1x1").size(), 1000U);
  for (const char* other : {"2x1", "3x1", "2x2"}) EXPECT_TRUE(bytes(other) == bytes("1x1"));
  std::ifstream config(scratch.path("3x1/config.json"));
  const std::string text{std::istreambuf_iterator<char>(config), {}};
  EXPECT_CONTAINS(text, "\"gelu_new\"");
}

}  // namespace
}  // namespace coshard::testing
