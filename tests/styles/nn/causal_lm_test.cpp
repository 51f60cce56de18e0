// CausalLM: names of Hugging Face, and the collectives and gradients of its tensor-parallel plans.
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

// `local`: what the projections of attention and MLP hand on.
ParallelPlan cut_plan(bool sequence, bool local, bool qk_norm = false) {
  ParallelPlan plan = nn::causal_lm_plan(sequence, qk_norm);
  for (const char* columns : {"self_attn.[qkv]_proj", "mlp.gate_proj", "mlp.up_proj"})
    plan[std::string("model.layers.*.") + columns] = ColwiseParallel{.use_local_output = local};
  return plan;
}

// Logits and gradients of a parallel Llama equal those of a plain one; what it issued.
Task<std::pair<Issued, Issued>> compare_causal_lm(World& world, nn::CausalLMConfig config,
                                                  ParallelPlan plan) {
  const DeviceMesh mesh = line(world);
  auto [plain, model] = twins<nn::CausalLM>(config, world);
  Task<void> cut = parallelize_module(*model, mesh, std::move(plan));
  co_await std::move(cut);
  const Tensor ids = integers(world, Shape{2, 5}, config.vocab_size);
  const Tensor seed = random(world, Shape{2, 5, config.vocab_size});
  const Tensor want = co_await plain->forward(ids);
  co_await backward(want, seed);
  CountingObserver counter(world);
  const Tensor got = co_await model->forward(ids);
  const Issued forward = take(counter);
  EXPECT_EQ(got.layout(), Layout(Shard(2)));
  const Tensor whole_seed = distribute_tensor(seed, mesh, Replicate(), std::nullopt);
  co_await backward(got, whole_seed);
  const Issued back = take(counter);
  expect_close(got, want);
  for (const NamedParameter& p : model->named_parameters())
    expect_close(p.slot->grad(), plain->parameter(p.name).grad());
  co_return std::pair{forward, back};
}

TEST(CausalLM, HasHuggingFacesNamesAndATiedHeadOnce) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::CausalLMConfig config = small_llama();
    config.num_hidden_layers = 1;
    config.qkv_bias = config.o_bias = true;
    nn::CausalLM model(config, world);
    std::vector<std::string> names;
    for (const NamedParameter& p : model.named_parameters()) names.push_back(p.name);
    const std::string layer = "model.layers.0.";
    EXPECT_EQ(names,
              (std::vector<std::string>{
                  "model.embed_tokens.weight", layer + "self_attn.q_proj.weight",
                  layer + "self_attn.q_proj.bias", layer + "self_attn.k_proj.weight",
                  layer + "self_attn.k_proj.bias", layer + "self_attn.v_proj.weight",
                  layer + "self_attn.v_proj.bias", layer + "self_attn.o_proj.weight",
                  layer + "self_attn.o_proj.bias", layer + "mlp.gate_proj.weight",
                  layer + "mlp.up_proj.weight", layer + "mlp.down_proj.weight",
                  layer + "input_layernorm.weight", layer + "post_attention_layernorm.weight",
                  "model.norm.weight", "lm_head.weight"}));
    config.tie_word_embeddings = true;
    nn::CausalLM tied(config, world);
    EXPECT_EQ(tied.named_parameters().size(), names.size() - 1);
    EXPECT_EQ(tied.lm_head.weight.id(), tied.model.embed_tokens.weight.id());
    co_return;
  });
}

TEST(CausalLM, TensorParallelAllReducesOncePerRowwiseProjection) {
  on_ranks(2, [](World& world) -> Task<void> {
    const auto [forward, back] =
        co_await compare_causal_lm(world, small_llama(), cut_plan(false, true));
    EXPECT_EQ(forward, Issued{.all_reduce = 5});
    EXPECT_LE(back.all_reduce, 11);  // of each column projection's input at most one
    EXPECT_EQ(back, Issued{.all_reduce = back.all_reduce});
  });
}

TEST(CausalLM, SequenceParallelSumsTheGradientsOfQKAndVBeforeItScattersThem) {
  on_ranks(4, [](World& world) -> Task<void> {
    for (bool local : {true, false}) {
      const auto [forward, back] =
          co_await compare_causal_lm(world, small_llama(), cut_plan(true, local));
      EXPECT_EQ(forward, (Issued{.all_gather = 5, .reduce_scatter = 5}));
      EXPECT_EQ(back, (Issued{.all_gather = 5, .reduce_scatter = 5}));
    }
  });
}

TEST(CausalLM, ATiedHeadKeepsOneGradient) {
  on_ranks(2, [](World& world) -> Task<void> {
    nn::CausalLMConfig config = small_llama();
    config.tie_word_embeddings = true;
    config.head_dim = 4;
    config.mlp_bias = true;
    const auto issued = co_await compare_causal_lm(world, config, cut_plan(true, true));
    EXPECT_EQ(issued.first, (Issued{.all_gather = 5, .reduce_scatter = 5}));
  });
}

TEST(CausalLM, NormsOfHeadsRunOnARanksOwnAndMoveNothing) {
  on_ranks(2, [](World& world) -> Task<void> {
    nn::CausalLMConfig config = small_llama();
    config.head_dim = 4;
    config.qk_norm = true;
    config.qkv_bias = true;
    config.hidden_act = nn::HiddenAct::Gelu;
    config.sliding_window = 2;
    config.layer_types = {nn::LayerType::Sliding, nn::LayerType::Full};
    config.rope = {.type = nn::RopeType::Dynamic, .factor = 2};
    config.max_position_embeddings = 4;  // of 5 positions
    for (const bool sequence : {false, true}) {
      const auto issued = co_await compare_causal_lm(world, config, cut_plan(sequence, true, true));
      EXPECT_EQ(issued.first, sequence ? (Issued{.all_gather = 5, .reduce_scatter = 5})
                                       : Issued{.all_reduce = 5});
    }
    nn::CausalLM model(config, world);
    EXPECT_NE(model.find("model.layers.1.self_attn.k_norm"), nullptr);
    co_return;
  });
}

// sqrt(3072) is 55.4256, in bf16 55.5.
TEST(CausalLM, ScalesEmbeddingsAsTheDtypeHoldsTheScale) {
  on_ranks(1, [](World& world) -> Task<void> {
    for (const DType dtype : {DType::F32, DType::BF16}) {
      nn::CausalLMConfig config = small_llama();
      config.hidden_size = 3072;
      config.head_dim = 2;
      config.num_hidden_layers = 1;
      config.embedding_scale = true;
      config.dtype = dtype;
      nn::CausalLM model(config, world);
      std::vector<double> got;
      model.model.layers[0].add_pre_hook(
          [&](Module&, Inputs& inputs) { got = inputs.args.front().detach().to_vector(); });
      fill_(model.model.embed_tokens.weight.detach(), 2);
      co_await model.forward(integers(world, Shape{1, 2}, 11));
      EXPECT_EQ(got.size(), 2U * 3072);
      EXPECT_NEAR(got.front(), dtype == DType::BF16 ? 111 : 110.85125168440814, 1e-5);
    }
  });
}

TEST(CausalLM, RefusesLayersThatDoNotFitTheirWindows) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::CausalLMConfig config = small_llama();
    config.layer_types = {nn::LayerType::Sliding, nn::LayerType::Full};
    EXPECT_THROW(nn::CausalLM(config, world), Error);
    config.sliding_window = 2;
    EXPECT_NO_THROW(nn::CausalLM(config, world));
    co_return;
  });
}

TEST(CausalLM, RefusesHeadsThatDoNotMakeGroupsOfTheConfig) {
  on_ranks(2, [](World& world) -> Task<void> {
    nn::CausalLM model(small_llama(), world);
    ParallelPlan plan;
    plan["model.layers.*.self_attn.q_proj"] = ColwiseParallel{};
    Task<void> cut = parallelize_module(model, line(world), std::move(plan));
    co_await std::move(cut);
    Task<Tensor> call = model.forward(integers(world, Shape{2, 5}, 11));
    const std::string text = co_await error_of(discard(std::move(call)));
    EXPECT_CONTAINS(text, "4 query heads on this rank are not 2 times the 4 key heads");
    nn::CausalLMConfig odd = small_llama();
    odd.head_dim = 3;
    EXPECT_THROW(nn::CausalLM(odd, world), Error);
  });
}

}  // namespace
}  // namespace coshard::testing
