// LoRA: values, gradients in each layout, collectives, training state, files.
#include <coshard/styles/lora.h>

#include <filesystem>

#include "tests/dtensor/checkpoint/saved_states.h"
#include "tests/styles/cut_models.h"

namespace coshard::testing {
namespace {

constexpr const char* kAttention = "model.layers.*.self_attn.*";
constexpr const char* kMlp = "model.layers.*.mlp.*";
constexpr LoraOptions kLora{.rank = 3, .alpha = 6, .dropout = 0.25};

// With adapters of all projections, of which B is not zero.
std::shared_ptr<nn::CausalLM> adapted(World& world, std::uint64_t seed, LoraOptions options) {
  manual_seed(seed);
  auto model = std::make_shared<nn::CausalLM>(tied_llama(DType::F64), world);
  add_lora(*model, kAttention, options);
  add_lora(*model, kMlp, options);
  const NoGradGuard no_grad;
  for (const NamedParameter& p : model->named_parameters())
    if (p.name.ends_with("lora_B.weight")) uniform_(*p.slot, -0.5, 0.5);
  return model;
}

enum class LoraPlan { Tp, TpSp, TpSpOverlapped, Fsdp, Both };

Task<void> cut(World& world, nn::LanguageModel& model, LoraPlan plan) {
  const int tp = plan == LoraPlan::Fsdp ? 1 : plan == LoraPlan::Both ? 2 : world.size();
  const DeviceMesh mesh = init_device_mesh(world, {world.size() / tp, tp}, {"dp", "tp"});
  if (plan != LoraPlan::Fsdp) {
    const bool overlaps = plan == LoraPlan::TpSpOverlapped;
    const ParallelPlan how = model.plan(overlaps || plan == LoraPlan::TpSp);
    const ParallelizeOptions options{.overlap = overlaps ? Overlap::Always : Overlap::Auto};
    Task<void> parallel = parallelize_module(model, mesh["tp"], how, options);
    co_await std::move(parallel);
  }
  if (plan != LoraPlan::Fsdp && plan != LoraPlan::Both) co_return;
  for (const auto& layer : model.blocks()) fully_shard(*layer, mesh["dp"]);
  fully_shard(model, mesh["dp"]);
}

Task<Tensor> loss_of(World& world, nn::LanguageModel& model) {
  const Tensor ids = integers(world, Shape{2, 8}, 11);
  Tensor logits = co_await model.forward(ids);
  if (logits.is_distributed()) logits = full_tensor(logits);
  co_return mean(logits * logits);
}

Task<void> gradients_equal(World& world, LoraPlan plan) {
  const auto whole = adapted(world, 5, kLora), parts = adapted(world, 5, kLora);
  Task<void> cutting = cut(world, *parts, plan);
  co_await std::move(cutting);
  std::vector<Tensor> losses;
  for (nn::CausalLM* model : {whole.get(), parts.get()}) {
    manual_seed(9);
    Task<Tensor> forward = loss_of(world, *model);
    losses.push_back(co_await std::move(forward));
    Task<void> behind = backward(losses.back());
    co_await std::move(behind);
  }
  expect_close(losses[1], losses[0]);
  const auto want = whole->named_parameters(), got = parts->named_parameters();
  for (std::size_t i = 0; i < want.size(); ++i) {
    const bool trains = want[i].name.find("lora_") != std::string::npos;
    EXPECT_EQ(want[i].slot->requires_grad(), trains) << want[i].name;
    EXPECT_EQ(got[i].slot->requires_grad(), trains) << want[i].name;
    EXPECT_EQ(got[i].slot->grad().defined(), trains) << want[i].name;
    SCOPED_TRACE(want[i].name);
    if (trains) expect_close(got[i].slot->grad(), want[i].slot->grad());
  }
}

TEST(Lora, GradientsOfEachPlanAreThoseOfOneRank) {
  const std::pair<LoraPlan, int> all[] = {
      {LoraPlan::Tp, 2},   {LoraPlan::Tp, 4},   {LoraPlan::TpSp, 2},           {LoraPlan::TpSp, 4},
      {LoraPlan::Fsdp, 2}, {LoraPlan::Both, 4}, {LoraPlan::TpSpOverlapped, 2}, {LoraPlan::Fsdp, 3}};
  for (const auto& [plan, ranks] : all) {
    SCOPED_TRACE(str_cat(static_cast<int>(plan), " on ", ranks));
    on_ranks(ranks, [plan = plan](World& world) { return gradients_equal(world, plan); });
  }
}

TEST(Lora, AddsTheScaledProductOfTwoFactors) {
  on_ranks(1, [](World& world) -> Task<void> {
    Mlp model(world, 6, 5, 4);
    nn::Linear* const layer = &model.net2;
    add_lora(model, "net2", {.rank = 2, .alpha = 3, .rslora = true});
    EXPECT_EQ(layer->lora_B->weight.to_vector(), std::vector<double>(8, 0));
    const Tensor a = layer->lora_A->weight.detach();
    EXPECT_LE(amax(abs(a)).item(), 1 / std::sqrt(5));
    EXPECT_GT(amax(abs(a)).item(), 0.5 / std::sqrt(5));
    const Tensor x = random(world, Shape{3, 5});
    expect_close(co_await layer->forward(x), linear(x, layer->weight, layer->bias));
    {
      const NoGradGuard no_grad;
      normal_(layer->lora_B->weight, 0, 1);
    }
    const Tensor product = matmul(layer->lora_B->weight, a);
    const Tensor merged = layer->weight + product * (3 / std::sqrt(2));
    expect_close(co_await layer->forward(x), linear(x, merged, layer->bias));
  });
}

struct Counts {
  Issued forward, backward, step;
  friend bool operator==(const Counts&, const Counts&) = default;
};

// Of a training step, with adapters or with what PEFT calls full fine-tuning.
Task<Counts> counts_of(World& world, LoraPlan plan, bool adapts) {
  CountingObserver observer(world);
  auto model = adapts ? adapted(world, 5, {.rank = 2})
                      : std::make_shared<nn::CausalLM>(tied_llama(DType::F64), world);
  Task<void> cutting = cut(world, *model, plan);
  co_await std::move(cutting);
  AdamW optimizer(model->parameters(), {.lr = 0.01});
  optimizer.check_replicas = 0;
  Counts counts;
  for (int step = 0; step < 3; ++step) {  // the first two compare inputs
    take(observer);
    Task<Tensor> forward = loss_of(world, *model);
    const Tensor loss = co_await std::move(forward);
    counts.forward = take(observer);
    Task<void> behind = backward(loss);
    co_await std::move(behind);
    counts.backward = take(observer);
    Task<void> stepped = optimizer.step();
    co_await std::move(stepped);
    counts.step = take(observer);
  }
  co_return counts;
}

TEST(Lora, AddsOneAllReduceOfAllGradientsToAStep) {
  for (const LoraPlan plan : {LoraPlan::Tp, LoraPlan::TpSp}) {
    on_ranks(2, [plan](World& world) -> Task<void> {
      Task<Counts> without = counts_of(world, plan, false);
      const Counts base = co_await std::move(without);
      Task<Counts> with = counts_of(world, plan, true);
      const Counts lora = co_await std::move(with);
      EXPECT_EQ(lora.forward, base.forward);
      Issued fewer = base.backward;  // nothing before the first adapters has a gradient
      (plan == LoraPlan::Tp ? fewer.all_reduce : fewer.reduce_scatter) -= 1;
      if (plan == LoraPlan::TpSp) fewer.all_gather -= 1;
      EXPECT_EQ(lora.backward, fewer);
      EXPECT_EQ(lora.step, (Issued{.all_reduce = 1}));
    });
  }
}

// What a checkpoint after two of four steps goes on to.
Task<Losses> losses_of(World& world, LoraPlan plan, std::string folder, std::int64_t end) {
  const auto model = adapted(world, 5, kLora);
  if (world.size() > 1) {
    Task<void> cutting = cut(world, *model, plan);
    co_await std::move(cutting);
  }
  AdamW optimizer(model->parameters(), {.lr = 0.01});
  Checkpoints checkpoints(*model, folder);
  checkpoints.add("optimizer", optimizer);
  Task<std::int64_t> resumed = checkpoints.resume();
  const auto first = static_cast<int>(co_await std::move(resumed));
  Task<Losses> training = trained(world, *model, optimizer, first, static_cast<int>(end));
  const Losses losses = co_await std::move(training);
  Task<void> saved = checkpoints.save(end);
  co_await std::move(saved);
  co_return losses;
}

TEST(Lora, TrainingGoesOnToTheBitAlsoOnOtherPlans) {
  for (const LoraPlan plan : {LoraPlan::Tp, LoraPlan::TpSp, LoraPlan::Fsdp}) {
    const ScratchFolder scratch;
    on_ranks(2, [&](World& world) -> Task<void> {
      Task<Losses> all = losses_of(world, plan, scratch.path("a"), 4);
      const Losses whole = co_await std::move(all);
      Task<Losses> begun = losses_of(world, plan, scratch.path("b"), 2);
      const Losses first = co_await std::move(begun);
      Task<Losses> rest = losses_of(world, plan, scratch.path("b"), 4);
      const Losses second = co_await std::move(rest);
      EXPECT_EQ(second, (Losses{whole[2], whole[3]}));
      Task<Losses> again = losses_of(world, plan, scratch.path("c"), 2);
      EXPECT_EQ(co_await std::move(again), first);
    });
    on_ranks(1, [&](World& world) -> Task<void> {
      Task<Losses> resumed = losses_of(world, plan, scratch.path("c"), 4);
      const Losses one = co_await std::move(resumed);
      Task<Losses> all = losses_of(world, plan, scratch.path("d"), 4);
      const Losses whole = co_await std::move(all);
      for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], whole[i + 2], 1e-10);
    });
  }
}

TEST(Lora, AdapterFilesOfEachPlanAreEqualAndLoad) {
  const ScratchFolder scratch;
  for (const int ranks : {1, 2}) {
    on_ranks(ranks, [&](World& world) -> Task<void> {
      const auto model = adapted(world, 5, kLora);
      if (ranks > 1) {
        Task<void> cutting = cut(world, *model, LoraPlan::Tp);
        co_await std::move(cutting);
      }
      Task<void> saved = save_adapter(*model, scratch.path(str_cat(ranks)));
      co_await std::move(saved);
    });
  }
  for (const char* file : {"adapter_model.safetensors", "adapter_config.json"})
    EXPECT_EQ(bytes_of(scratch.path(str_cat("1/", file))),
              bytes_of(scratch.path(str_cat("2/", file))));
  on_ranks(2, [&](World& world) -> Task<void> {
    const auto want = adapted(world, 5, kLora);
    manual_seed(8);
    const auto got = std::make_shared<nn::CausalLM>(tied_llama(DType::F64), world);
    Task<LoadReport> before = load_adapter(*got, scratch.path("2"));  // adds them
    co_await std::move(before);
    EXPECT_FALSE(got->lm_head.weight.requires_grad());
    Task<void> cutting = cut(world, *got, LoraPlan::TpSp);
    co_await std::move(cutting);
    Task<LoadReport> after = load_adapter(*got, scratch.path("1"));
    co_await std::move(after);
    for (const auto& [name, slot] : want->named_parameters())
      if (name.find("lora_") != std::string::npos) expect_close(got->parameter(name), *slot, 0);
  });
}

TEST(Lora, LoadLeavesAdaptersThatTheBaseLacks) {
  const ScratchFolder scratch;
  on_ranks(2, [&](World& world) -> Task<void> {
    manual_seed(3);
    nn::CausalLM base(tied_llama(DType::F64), world);
    Task<void> saved = save(base, scratch.path("base"));
    co_await std::move(saved);
    const auto model = nn::open_model(scratch.path("base"), world);
    add_lora(*model, kAttention, kLora);
    Task<void> cutting = cut(world, *model, LoraPlan::Tp);
    co_await std::move(cutting);
    Task<LoadReport> loaded = load(*model, scratch.path("base"));
    const LoadReport report = co_await std::move(loaded);
    EXPECT_EQ(report.missing.size(), 16U);
    Task<void> saving = save_adapter(*model, scratch.path("adapter"));
    co_await std::move(saving);
    EXPECT_CONTAINS(bytes_of(scratch.path("adapter/adapter_config.json")),
                    str_cat("\"base_model_name_or_path\": \"", scratch.path("base"), "\""));
    EXPECT_EQ(report.missing.front(), "model.layers.0.self_attn.q_proj.lora_A.weight");
    expect_close(model->parameter("model.norm.weight"), base.model.norm.weight, 0);
    const NoGradGuard no_grad;
    Task<Tensor> with = loss_of(world, *model), without = loss_of(world, base);
    const Tensor got = co_await std::move(with);
    expect_close(got, co_await std::move(without));
  });
}

TEST(Lora, AnAdapterOfAnotherModelIsRefused) {
  const ScratchFolder scratch;
  on_ranks(2, [&](World& world) -> Task<void> {
    const auto model = adapted(world, 5, kLora);
    Task<void> saved = save_adapter(*model, scratch.path("adapter"));
    co_await std::move(saved);
    nn::CausalLMConfig shorter = tied_llama(DType::F64), wider = shorter;
    shorter.num_hidden_layers = 1;
    wider.intermediate_size += 8;
    for (const auto& config : {shorter, wider}) {
      nn::CausalLM other(config, world);
      Task<std::string> loading = refusal(load_adapter(other, scratch.path("adapter")));
      const std::string told = co_await std::move(loading);
      EXPECT_CONTAINS(told, "adapter_model.safetensors: is of another model: ");
      EXPECT_CONTAINS(told,
                      config.num_hidden_layers == 1 ? "'model.layers.1." : "'model.layers.0.");
    }
  });
}

TEST(Lora, RefusesWhatItCannotAdapt) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::CausalLM model(tied_llama(DType::F64), world);
    const auto told = [&](const char* pattern, LoraOptions options) {
      return error_of([&] { add_lora(model, pattern, options); });
    };
    EXPECT_CONTAINS(told("model.layers.*.self_atn.q_proj", {}), "model.layers.0.self_attn.q_proj");
    EXPECT_CONTAINS(told("model.layers.*.input_layernorm", {}), "matches no nn::Linear");
    for (const char* end : {"q_proj", "self_attn.q_proj", "*.q_proj"})
      EXPECT_CONTAINS(told(end, {}), str_cat("'", end, "' matches"));
    EXPECT_CONTAINS(told("q_proj", {}), "whole paths: model.layers.*.self_attn.q_proj");
    EXPECT_CONTAINS(told("*.[qv]_proj", {}), "whole paths: model.layers.*.*.[qv]_proj");
    EXPECT_CONTAINS(told(kMlp, {.rank = 0}), "rank 0");
    EXPECT_CONTAINS(told(kMlp, {.dropout = 1}), "dropout 1");
    EXPECT_TRUE(model.lm_head.weight.requires_grad());
    add_lora(model, kMlp);
    EXPECT_CONTAINS(told(kMlp, {}), "has an adapter already");
    EXPECT_CONTAINS(told(kAttention, {.rank = 2}), "rank 8");
    Mlp none(world);
    Task<std::string> unsaved = refusal(save_adapter(none, "x"));
    EXPECT_CONTAINS(co_await std::move(unsaved), "no adapters");
    distribute_module(none, line(world));
    EXPECT_CONTAINS(error_of([&] { add_lora(none, "net1"); }), "before parallelize_module");
  });
}

}  // namespace
}  // namespace coshard::testing
