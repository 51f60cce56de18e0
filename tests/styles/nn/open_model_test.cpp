// Models of Hugging Face folders compute what transformers does (nn/models/make.py).
#include <filesystem>

#include "tests/dtensor/checkpoint/stored_files.h"
#include "tests/styles/support.h"

#include <coshard/dtensor/distribute/deferred_init.h>

namespace coshard::testing {
namespace {

enum class Plan { Plain, Tp, TpSp };

struct ModelCase {
  const char *folder, *weights;
};

std::string stored(const std::string& name) { return COSHARD_TEST_MODELS "/" + name; }

// Everything in expected.safetensors, whose names are those of the model's gradients.
Task<State> expected_of(World& world, std::string folder, nn::LanguageModel& model) {
  const Shape seen{1, 24};
  State found;
  found.add("ids", zeros(world.device(), seen, DType::I64));
  found.add("logits", zeros(world.device(), {1, 24, model.vocab_size()}));
  for (const NamedParameter& p : model.named_parameters())
    found.add("grad." + p.name, zeros(world.device(), p.slot->shape()));
  LoadOptions some;
  some.strict = false;
  Task<LoadReport> reading = load(found, stored(folder + "/expected.safetensors"), some);
  const LoadReport report = co_await std::move(reading);
  EXPECT_TRUE(report.unexpected.empty());
  State there;
  for (const NamedState& entry : found)
    if (std::ranges::find(report.missing, entry.name) == report.missing.end())
      there.add(entry.name, entry.tensor);
  EXPECT_GT(there.size(), 5U);
  co_return there;
}

// Within `tolerance` of the largest.
void expect_same(const Tensor& got, const Tensor& want, double tolerance, const std::string& what) {
  const Tensor full = got.is_distributed() ? full_tensor(got.detach()) : got.detach();
  ASSERT_EQ(full.shape(), want.shape()) << what;
  const std::vector<double> a = full.to_vector(), b = want.to_vector();
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  EXPECT_LE(worst, tolerance * largest) << what;
}

std::shared_ptr<nn::CausalLM> open_causal_lm(const std::string& folder, World& world,
                                             const nn::OpenModelOptions& options = {}) {
  auto model = std::dynamic_pointer_cast<nn::CausalLM>(nn::open_model(folder, world, options));
  CS_REQUIRE(model, folder, " has no CausalLM");
  return model;
}

Task<void> compare_model(World& world, ModelCase c, Plan plan) {
  const std::shared_ptr<nn::LanguageModel> model = nn::open_model(stored(c.folder), world);
  model->train(false);  // GPT-2's drop
  Task<State> reading = expected_of(world, c.folder, *model);
  const State want = co_await std::move(reading);
  const DeviceMesh mesh = line(world);
  if (plan != Plan::Plain) {
    Task<void> cut = parallelize_module(*model, mesh, model->plan(plan == Plan::TpSp));
    co_await std::move(cut);
  }
  Task<LoadReport> loading = load(*model, stored(std::string(c.weights) + ".safetensors"));
  co_await std::move(loading);
  const Tensor logits = co_await model->forward(want["ids"]);
  expect_same(logits, want["logits"], 1e-5, "logits");
  std::vector<double> seed(static_cast<std::size_t>(numel(logits.shape())));
  for (std::size_t i = 0; i < seed.size(); ++i) seed[i] = std::cos(static_cast<double>(i) / 10);
  Tensor slope = Tensor::from_values(world.device(), logits.shape(), DType::F32, seed);
  if (plan != Plan::Plain) slope = distribute_tensor(slope, mesh, Replicate(), std::nullopt);
  co_await backward(logits, slope);
  for (const NamedParameter& p : model->named_parameters())
    if (const NamedState* grad = want.find("grad." + p.name))
      expect_same(p.slot->grad(), grad->tensor, 1e-4, p.name);
}

void compare(ModelCase c, std::initializer_list<int> counts = {1, 2, 4}) {
  for (const int ranks : counts) {
    on_ranks(ranks, [&](World& world) -> Task<void> {
      for (const Plan plan : {Plan::Plain, Plan::Tp, Plan::TpSp}) {
        SCOPED_TRACE(str_cat(c.folder, " on ", world.size(), ", plan ", static_cast<int>(plan)));
        Task<void> comparing = compare_model(world, c, plan);
        co_await std::move(comparing);
      }
    });
  }
}

TEST(CausalLM, S46Llama) { compare({"llama", "llama"}); }
TEST(CausalLM, S46LlamaWithBiasesAndATiedHead) { compare({"llama_biases", "llama_biases"}); }
TEST(CausalLM, S46LlamaWithGeluAndARowThatPads) { compare({"llama_gelu", "llama"}); }
TEST(CausalLM, S47Llama3Rope) { compare({"llama_llama3", "llama"}); }
TEST(CausalLM, S48LinearRope) { compare({"llama_linear", "llama"}); }
TEST(CausalLM, S48DynamicRope) { compare({"llama_dynamic", "llama"}); }
TEST(CausalLM, S48YarnRope) { compare({"llama_yarn", "llama"}); }
TEST(CausalLM, S49Qwen2) { compare({"qwen2", "qwen2"}); }
TEST(CausalLM, S49Qwen2WithALayerThatSlides) { compare({"qwen2_window", "qwen2"}); }
TEST(CausalLM, S50Qwen3) { compare({"qwen3", "qwen3"}); }
TEST(CausalLM, S55NineHeads) { compare({"llama_odd", "llama_odd"}, {1, 2, 3, 4}); }
TEST(CausalLM, S55FewerKeyHeadsThanRanks) { compare({"qwen3_few", "qwen3_few"}, {1, 3, 4}); }
TEST(CausalLM, S52Gemma) { compare({"gemma", "gemma"}); }
TEST(GPT2, S53GPT2) { compare({"gpt2", "gpt2"}, {1, 2, 3, 4}); }
TEST(GPT2, S53GPT2WithScalesOfItsLayers) { compare({"gpt2_scales", "gpt2"}); }
TEST(CausalLM, S51MistralSlides) { compare({"mistral", "mistral"}); }

TEST(OpenModel, KeepsTheOtherFilesOfTheFolder) {
  const ScratchFolder scratch;
  std::filesystem::copy(stored("qwen2"), scratch.path("from"));
  std::filesystem::copy(stored("qwen2.safetensors"), scratch.path("from/model.safetensors"));
  scratch.write("from/tokenizer.json", "{\"a\": 1}");
  scratch.write("from/notes.txt", "mine");
  on_ranks(2, [&](World& world) -> Task<void> {
    const auto model = open_causal_lm(scratch.path("from"), world);
    EXPECT_TRUE(is_deferred(model->lm_head.weight));
    Task<LoadReport> loading = load(*model, scratch.path("from"));
    co_await std::move(loading);
    AdamW optimizer(model->parameters());
    Task<void> saved = save(*model, optimizer, scratch.path("to"));
    co_await std::move(saved);
    const auto again = open_causal_lm(scratch.path("to"), world);
    EXPECT_EQ(again->config, model->config);
    Task<LoadReport> reading = load(*again, scratch.path("to"));
    co_await std::move(reading);
    EXPECT_EQ(again->lm_head.weight.to_vector(), model->lm_head.weight.to_vector());
  });
  const auto text = [&](const char* name) {
    std::ifstream in(scratch.path(name));
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  EXPECT_EQ(text("to/config.json"), text("from/config.json"));
  EXPECT_EQ(text("to/tokenizer.json"), "{\"a\": 1}");
  EXPECT_FALSE(std::filesystem::exists(scratch.path("to/notes.txt")));
}

TEST(OpenModel, PassesOverFrequenciesOfOlderFilesAndReportsThem) {
  const ScratchFolder scratch;
  on_ranks(2, [&](World& world) -> Task<void> {
    const std::string name = "model.layers.0.self_attn.rotary_emb.inv_freq";
    nn::CausalLM model(small_llama(), world);
    State state = state_dict(model);
    state.add(name, zeros(world.device(), {4}));
    Task<void> saved = save(state, scratch.path("old"));
    co_await std::move(saved);
    Task<LoadReport> loading = load(model, scratch.path("old"));
    const LoadReport report = co_await std::move(loading);
    EXPECT_EQ(report.unused, std::vector<std::string>{name});
    EXPECT_TRUE(report.unexpected.empty());
    state.add("model.layers.0.self_attn.k_norm.weight", zeros(world.device(), {4}));
    Task<void> more = save(state, scratch.path("other"));
    co_await std::move(more);
    std::string said;
    try {
      Task<LoadReport> refused = load(model, scratch.path("other"));
      co_await std::move(refused);
    } catch (const Error& error) {
      said = error.message();
    }
    EXPECT_CONTAINS(said, "has 'model.layers.0.self_attn.k_norm.weight'");
    EXPECT_EQ(said.find("inv_freq"), std::string::npos);
  });
}

TEST(OpenModel, ComparesTheConfigOfACheckpoint) {
  const ScratchFolder scratch;
  on_ranks(2, [&](World& world) -> Task<void> {
    nn::CausalLM model(small_llama(), world);
    AdamW optimizer(model.parameters());
    Task<void> saved = save(model, optimizer, scratch.path("m"));
    co_await std::move(saved);
    EXPECT_EQ(open_causal_lm(scratch.path("m"), world)->config, model.config);
  });
  std::ifstream in(scratch.path("m/config.json"));
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::size_t at = text.find("1e-06");
  ASSERT_NE(at, std::string::npos) << text;
  scratch.write("m/config.json", text.replace(at, 1, "3"));
  on_ranks(1, [&](World& world) -> Task<void> {
    EXPECT_CONTAINS(error_of([&] { nn::open_model(scratch.path("m"), world); }),
                    "config.json: is damaged");
    co_return;
  });
}

TEST(OpenModel, TakesADtypeAndKeysToIgnore) {
  on_ranks(1, [](World& world) -> Task<void> {
    const auto model = open_causal_lm(stored("qwen3"), world, {.dtype = DType::BF16});
    EXPECT_EQ(model->lm_head.weight.dtype(), DType::BF16);
    EXPECT_TRUE(model->model.layers[0].self_attn.q_norm.has_value());
    EXPECT_THROW(nn::open_model(stored(""), world), Error);
    co_return;
  });
}

TEST(OpenModel, RefusesAttentionDropoutInTrainingAlone) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::CausalLMConfig config = small_llama();
    config.attention_dropout = 0.1;
    nn::CausalLM model(config, world);
    const Tensor ids = integers(world, Shape{1, 3}, 11);
    const std::string text = co_await error_of(discard(model.forward(ids)));
    EXPECT_CONTAINS(text, "attention_dropout 0.1 is not supported in training");
    model.train(false);
    co_await model.forward(ids);
  });
}

}  // namespace
}  // namespace coshard::testing
