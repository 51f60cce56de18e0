// `llama finetune` with a tokenizer of bytes: what it trains, saves, resumes and refuses.
#include "examples/llama/finetune.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "tests/dtensor/checkpoint/saved_states.h"
#include "tests/styles/support.h"

namespace coshard::llama {
namespace {

using testing::bytes_of;
using testing::error_of;
using testing::expect_close;
using testing::on_ranks;
using testing::ScratchFolder;

struct Bytes {
  static Bytes open(const std::string&) { return {}; }
  std::vector<std::int64_t> encode(std::string_view text, bool) const {
    CS_REQUIRE(text != "wrong", "a text is wrong");
    return {text.begin(), text.end()};
  }
};

// A folder with a model of bytes, and a text of which each letter follows from the one before.
struct Files {
  ScratchFolder scratch;
  Files() {
    nn::CausalLMConfig config;
    config.vocab_size = 128;
    config.hidden_size = 32;
    config.intermediate_size = 48;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.initializer_range = 0.1;
    on_ranks(1, [&](World& world) -> Task<void> {
      manual_seed(3);
      nn::CausalLM model(config, world);
      Task<void> saving = save(model, scratch.path("base"));
      co_await std::move(saving);
    });
    std::string text;
    for (int i = 0; i < 800; ++i) text += static_cast<char>('a' + i * 5 % 26);
    scratch.write("text", text);
  }
  FinetuneOptions options(const std::string& out, const char* plan = "tp", int ranks = 2) const {
    FinetuneOptions o;
    o.folder = scratch.path("base");
    o.text = scratch.path("text");
    o.plan = plan;
    o.ranks = ranks;
    o.steps = 12;
    o.warmup = 1;
    o.seq = 16;
    o.lr = 1e-2;
    o.save = out.empty() ? "" : scratch.path(out);
    return o;
  }
};

std::vector<double> losses_of(const FinetuneOptions& o) {
  check_finetune(o);
  const TokenFile tokens = tokens_of<Bytes>(o);
  StepFigures figures;
  on_ranks(o.ranks, [&](World& world) -> Task<void> {
    StepFigures own;
    Task<void> tuned = finetune(world, o, tokens, own);
    co_await std::move(tuned);
    if (world.rank() == 0) figures = std::move(own);
  });
  return figures.loss;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-3) << i;
}

TEST(Finetune, EachPlanLearnsTheSame) {
  const Files files;
  const std::vector<double> one = losses_of(files.options("one", "one", 1));
  ASSERT_EQ(one.size(), 12U);
  EXPECT_LT(one.back(), one.front() - 1);
  for (const char* plan : {"tp", "tp-sp", "dp", "fsdp"}) {
    SCOPED_TRACE(plan);
    expect_near(losses_of(files.options(plan, plan)), one);
    EXPECT_TRUE(std::filesystem::exists(files.scratch.path(str_cat(plan, "/config.json"))));
  }
}

TEST(Finetune, ReplicasDropOtherInputs) {
  const Files files;
  files.scratch.write("text", std::string(800, 'x'));  // all rows are equal
  for (const char* plan : {"dp", "fsdp"}) {
    const auto with = [&](int ranks) {
      FinetuneOptions o = files.options("", plan, ranks);
      o.batch = ranks;
      o.lora = 4;
      o.dropout = 0.5;
      return losses_of(o);
    };
    EXPECT_GT(std::abs(with(2).back() - with(4).back()), 1e-6) << plan;
  }
}

TEST(Finetune, SavesAdaptersThatLoad) {
  const Files files;
  FinetuneOptions o = files.options("adapter", "fsdp");
  o.lora = 4;
  o.steps = 100;
  o.targets = "model.layers.*.self_attn.*,model.layers.*.mlp.*";
  const std::vector<double> losses = losses_of(o);
  EXPECT_LT(losses.back(), losses.front() / 2);
  on_ranks(1, [&](World& world) -> Task<void> {
    const auto model = nn::open_model(o.folder, world);
    Task<LoadReport> adapters = load_adapter(*model, o.save);
    co_await std::move(adapters);
    EXPECT_EQ(model->parameter("model.layers.1.mlp.down_proj.lora_A.weight").size(0), 4);
  });
  EXPECT_FALSE(std::filesystem::exists(o.save + "/model.safetensors"));
}

TEST(Finetune, TakesPatternsWithBlanksAndNamesOthers) {
  const Files files;
  FinetuneOptions o = files.options("", "one", 1);
  o.steps = 1;
  o.lora = 4;
  o.targets = "*.*.*.self_attn.q_proj , model.layers.0.mlp.*,  model.layers.1.mlp.up_proj ";
  EXPECT_EQ(losses_of(o).size(), 1U);
  o.targets = "lm_head";
  EXPECT_EQ(losses_of(o).size(), 1U);
  o.targets = "*.q_proj, nonsense.*";
  EXPECT_CONTAINS(error_of([&] { losses_of(o); }), "--targets *.q_proj, nonsense.*: ");
}

TEST(Finetune, ResumesToTheBit) {
  const Files files;
  for (const int lora : {0, 4}) {
    const auto with = [&](const char* name, int steps) {
      FinetuneOptions o = files.options(str_cat(name, lora), "tp");
      o.lora = lora;
      o.dropout = lora > 0 ? 0.1 : 0;
      o.steps = steps;
      o.every = 4;
      o.resume = true;
      return o;
    };
    const FinetuneOptions whole = with("whole", 12);
    const std::vector<double> all = losses_of(whole);
    FinetuneOptions part = with("part", 12);
    std::filesystem::create_directories(part.save + ".steps");
    std::filesystem::copy(whole.save + ".steps/step-8", part.save + ".steps/step-8",
                          std::filesystem::copy_options::recursive);
    EXPECT_EQ(losses_of(part), std::vector<double>(all.begin() + 8, all.end()));
    const char* file = lora > 0 ? "/adapter_model.safetensors" : "/model.safetensors";
    EXPECT_EQ(bytes_of(part.save + file), bytes_of(whole.save + file));
  }
}

TEST(Finetune, ResumesWithTheSettingsOfTheCheckpoint) {
  const Files files;
  FinetuneOptions o = files.options("x", "one", 1);
  o.lora = 4;
  o.dropout = 0.25;
  o.steps = 4;
  o.every = 2;
  EXPECT_EQ(losses_of(o).size(), 4U);
  std::filesystem::remove_all(o.save);
  o.resume = true;
  const auto told = [&](auto change) {
    FinetuneOptions changed = o;
    change(changed);
    return error_of([&] { losses_of(changed); });
  };
  EXPECT_CONTAINS(told([](auto& x) { x.seed = 2; }), "was trained with --seed 1;");
  EXPECT_CONTAINS(told([](auto& x) { x.batch = 2, x.seq = 32; }), "with --batch 4; give that");
  EXPECT_CONTAINS(told([](auto& x) { x.seq = 8; }), "with --seq 16;");
  EXPECT_CONTAINS(told([](auto& x) { x.alpha = 99; }), "with --alpha 16;");
  EXPECT_CONTAINS(told([](auto& x) { x.dropout = 0; }), "with --dropout 0.25;");
  files.scratch.write("other", std::string(800, 'x'));
  EXPECT_CONTAINS(told([&](auto& x) { x.text = files.scratch.path("other"); }), "another text");
  const std::string other_base = files.scratch.path("other-base");
  std::filesystem::copy(o.folder, other_base);
  {
    std::fstream weights(other_base + "/model.safetensors",
                         std::ios::binary | std::ios::in | std::ios::out);
    std::uint64_t header = 0;
    weights.read(reinterpret_cast<char*>(&header), sizeof header);
    weights.seekp(static_cast<std::streamoff>(sizeof header + header));
    weights.put('x');
  }
  EXPECT_CONTAINS(told([&](auto& x) { x.folder = other_base; }), "another model");
  const auto printed = [&](int steps, std::size_t losses) {
    o.steps = steps;
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(losses_of(o).size(), losses);
    return ::testing::internal::GetCapturedStdout();
  };
  EXPECT_CONTAINS(printed(3, 0), "x.steps/step-4, which has all 3 steps: saves ");
  EXPECT_TRUE(std::filesystem::exists(o.save + "/adapter_model.safetensors"));
  std::filesystem::remove_all(o.save);
  EXPECT_CONTAINS(printed(5, 1), "goes on from ");
  EXPECT_TRUE(std::filesystem::exists(o.save + ".steps/step-5"));  // the last, odd one
  o.save += "y";
  EXPECT_CONTAINS(printed(1, 1), "has no checkpoint: begins with step 1");
}

TEST(Finetune, ResumesWithTheAdaptersOfTheCheckpoint) {
  const Files files;
  FinetuneOptions o = files.options("x");
  o.lora = 4;
  o.steps = o.every = 1;
  losses_of(o);
  std::filesystem::remove_all(o.save);
  o.resume = true;
  const auto told = [&](int lora, const char* targets) {
    FinetuneOptions changed = o;
    changed.lora = lora;
    changed.targets = targets;
    return error_of([&] { losses_of(changed); });
  };
  constexpr const char* kSome = "model.layers.0.self_attn.q_proj";
  EXPECT_CONTAINS(told(2, kSome), "--lora 2: ");
  EXPECT_CONTAINS(told(2, kSome), "x.steps was trained with --lora 4; give that");
  EXPECT_CONTAINS(told(0, kSome), "--lora is missing: ");
  const std::string other = told(4, kSome);
  EXPECT_CONTAINS(other, str_cat("--targets ", kSome, ": "));
  const std::size_t begin = other.find('\'') + 1;
  o.targets = other.substr(begin, other.find('\'', begin) - begin);
  EXPECT_EQ(o.targets, "model.layers.*.self_attn.q_proj,model.layers.*.self_attn.v_proj");
  o.steps = 2;
  EXPECT_EQ(losses_of(o).size(), 1U);
  FinetuneOptions whole = files.options("y", "one", 1);
  whole.steps = whole.every = 1;
  losses_of(whole);
  std::filesystem::remove_all(whole.save);
  whole.resume = true;
  whole.lora = 4;
  EXPECT_CONTAINS(error_of([&] { losses_of(whole); }), "y.steps was trained without --lora");
}

TEST(Finetune, NamesTheTargetsOfSomeLayersOneByOne) {
  const Files files;
  FinetuneOptions o = files.options("x", "one", 1);
  o.lora = 4;
  o.steps = o.every = 1;
  o.targets = "model.layers.1.self_attn.q_proj";
  losses_of(o);
  std::filesystem::remove_all(o.save);
  o.resume = true;
  o.targets = "lm_head";
  EXPECT_CONTAINS(error_of([&] { losses_of(o); }), "--targets 'model.layers.1.self_attn.q_proj';");
}

TEST(Finetune, TriesItsFolderBeforeItTrains) {
  const Files files;
  FinetuneOptions o = files.options("new/deep//x/");
  EXPECT_CONTAINS(error_of([&] { losses_of(o); }), "`mkdir -p ");
  EXPECT_FALSE(std::filesystem::exists(files.scratch.path("new")));
  std::filesystem::create_directories(files.scratch.path("new/deep"));
  o.steps = 2;
  o.every = 1;
  EXPECT_EQ(losses_of(o).size(), 2U);
  EXPECT_TRUE(std::filesystem::exists(files.scratch.path("new/deep/x/model.safetensors")));
  EXPECT_TRUE(std::filesystem::exists(files.scratch.path("new/deep/x.steps/step-2")));
  std::filesystem::create_directory(files.scratch.path("empty"));
  o.save = files.scratch.path("empty");
  EXPECT_EQ(losses_of(o).size(), 2U);
  files.scratch.write("file", "");
  o.save = files.scratch.path("file");
  EXPECT_CONTAINS(error_of([&] { losses_of(o); }), "is there already; give another folder");
  o.save += "/x";
  EXPECT_CONTAINS(error_of([&] { losses_of(o); }), "file/x.part: cannot be made");
  o.save = ".";
  EXPECT_CONTAINS(error_of([&] { check_finetune(o); }), "'.' is no name");
}

TEST(Finetune, ReadsIdsAsTheyAreToldAndRefusesOthers) {
  const Files files;
  FinetuneOptions o = files.options("");
  tokens_of<Bytes>(o).save(files.scratch.path("ids.npy"));
  FinetuneOptions of_ids = o;
  of_ids.text = files.scratch.path("ids.npy");
  EXPECT_EQ(losses_of(of_ids), losses_of(o));
  TokenFile({1, 2, 128, 3}, "x").save(of_ids.text);
  of_ids.seq = 3;
  EXPECT_CONTAINS(error_of([&] { losses_of(of_ids); }), "token id 128 at 2");
  of_ids.text = files.scratch.path("");
  EXPECT_CONTAINS(error_of([&] { tokens_of<Bytes>(of_ids); }), "Is a directory");
  of_ids.text = files.scratch.write("wrong.txt", "wrong");
  EXPECT_CONTAINS(error_of([&] { tokens_of<Bytes>(of_ids); }), "wrong.txt: a text is wrong");
  const auto told = [&](auto change) {
    FinetuneOptions changed = o;
    change(changed);
    return error_of([&] { check_finetune(changed); });
  };
  EXPECT_CONTAINS(told([](auto& x) { x.plan = "one"; }), "--plan one");
  EXPECT_CONTAINS(told([](auto& x) { x.plan = "dp", x.batch = 3; }), "--batch 3");
  EXPECT_CONTAINS(told([](auto& x) { x.every = 3; }), "--every needs --save");
  EXPECT_CONTAINS(told([](auto& x) { x.resume = true; }), "--resume needs --every");
  EXPECT_CONTAINS(told([&](auto& x) { x.save = x.folder; }), "is there already; give another");
  EXPECT_CONTAINS(told([&](auto& x) { x.save = x.folder, x.every = 1, x.resume = true; }),
                  "is there already; move it away");
}

TEST(Finetune, DeclaresItsOptions) {
  FinetuneOptions o;
  CLI::App app;
  add_finetune(app, o);
  const char* const args[] = {
      "x",         "models/a", "--text", "t", "--ranks", "2", "--plan",   "tp-sp",   "--lora", "8",
      "--targets", "a.*",      "--save", "b", "--every", "5", "--resume", "--dtype", "bf16"};
  app.parse(static_cast<int>(std::size(args)), args);
  EXPECT_EQ(o.folder, "models/a");
  EXPECT_EQ(o.ranks, 2);
  EXPECT_EQ(o.lora, 8);
  EXPECT_EQ(o.dtype_name, "bf16");
  EXPECT_TRUE(o.resume);
  EXPECT_THROW(app.parse("models/a --text t --plan pp"), Error);
  for (const char* option : {"--alpha 99", "--dropout 0.5", "--targets x"})
    EXPECT_THROW(app.parse(str_cat("models/a --text t ", option)), CLI::RequiresError) << option;
}

}  // namespace
}  // namespace coshard::llama
