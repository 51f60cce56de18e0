#include "examples/llama/finetune.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <numbers>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "dtensor/checkpoint/agreement.h"
#include "dtensor/checkpoint/local_parts.h"
#include "dtensor/checkpoint/manifest.h"
#include "dtensor/checkpoint/model_folder.h"
#include "dtensor/checkpoint/new_folder.h"
#include "dtensor/checkpoint/step_folders.h"
#include "examples/llama/model_folder.h"
#include "styles/path_pattern.h"
#include "tools/options.h"

namespace coshard::llama {
namespace {

bool cuts_batch(const FinetuneOptions& o) { return o.plan == "dp" || o.plan == "fsdp"; }

std::string steps_folder(const FinetuneOptions& o) {
  return NewFolder::resolved(o.save) + ".steps";
}

// Makes what save() begins with, and removes it again.
void try_place(const std::string& folder) {
  try {
    const NewFolder tried(NewFolder::resolved(folder), false);
  } catch (const Error& error) {
    const std::string text = error.message();
    const bool tells_what_to_do = text.find("mkdir -p") != text.npos;
    fail(error.kind(),
         str_cat("--save ", folder, ": ", text, tells_what_to_do ? "" : "; give another folder"));
  }
}

// Error{BadInput} on all ranks: --save could not be made at the end.
Task<void> require_place(World& world, const FinetuneOptions& o) {
  if (o.save.empty()) co_return;
  std::exception_ptr failed;
  if (world.rank() == 0) failed = failure_of([&] { try_place(o.save); });
  Task<void> agreed = agree(world, failed);
  co_await std::move(agreed);
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(' '), text.size());
  return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

std::vector<std::string> patterns_of(std::string_view targets) {
  std::vector<std::string> all;
  for (std::size_t begin = 0; begin <= targets.size();) {
    const std::size_t end = std::min(targets.find(',', begin), targets.size());
    all.emplace_back(trimmed(targets.substr(begin, end - begin)));
    begin = end + 1;
  }
  return all;
}

// Error{BadInput}: an adapter of a layer whose weight is an embedding's as well.
void require_untied(Module& model) {
  std::map<const void*, std::string> embeddings;
  for (const NamedModule& m : model.named_modules())
    if (const auto* table = dynamic_cast<const nn::Embedding*>(m.module))
      embeddings.emplace(table->weight.id(), m.path);
  for (const NamedModule& m : model.named_modules()) {
    const auto* layer = dynamic_cast<const nn::Linear*>(m.module);
    if (layer == nullptr || !layer->lora_A) continue;
    const auto tied = embeddings.find(layer->weight.id());
    CS_REQUIRE(tied == embeddings.end(), m.path, " has the weight of ", tied->second,
               ", which an adapter would change too when it is merged; leave ", m.path, " out");
  }
}

void add_adapters(Module& model, const FinetuneOptions& o) {
  const LoraOptions lora{.rank = o.lora, .alpha = o.alpha, .dropout = o.dropout};
  try {
    for (const std::string& pattern : patterns_of(o.targets)) add_lora(model, pattern, lora);
    require_untied(model);
  } catch (const Error& error) {
    fail(error.kind(), str_cat("--targets ", o.targets, ": ", error.message()));
  }
}

// The model of one rank, cut by the plan.
struct Learner {
  const FinetuneOptions& options;
  World& world;
  std::shared_ptr<nn::LanguageModel> model = {};
  DeviceMesh replicas = {};  // defined for dp and fsdp
  std::optional<DataParallel> gradients = {};

  std::vector<Tensor> trained() const {
    std::vector<Tensor> all = model->parameters();
    std::erase_if(all, [](const Tensor& p) { return !p.requires_grad(); });
    return all;
  }

  Task<void> open() {
    nn::OpenModelOptions how;
    how.ignore = options.ignore;
    if (!options.dtype_name.empty()) how.dtype = parse_dtype(options.dtype_name);
    model = nn::open_model(options.folder, world, how);
    if (options.lora > 0) add_adapters(*model, options);
    Task<void> cutting = cut();
    co_await std::move(cutting);
    LoadOptions reading;
    if (how.dtype) reading.cast = Cast::Any;
    Task<LoadReport> loading = load(*model, options.folder, reading);
    co_await std::move(loading);
    if (options.plan == "dp" && world.size() > 1) gradients.emplace(trained(), replicas, 0);
  }

  Task<void> cut() {
    if (world.size() == 1) co_return;
    const bool dp = cuts_batch(options);
    const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {dp ? "dp" : "tp"});
    if (dp) replicas = mesh;
    if (options.plan == "fsdp") {
      for (const auto& layer : model->blocks()) fully_shard(*layer, mesh);
      fully_shard(*model, mesh);
    } else if (!dp) {
      const ParallelPlan plan = model->plan(options.plan == "tp-sp");
      Task<void> parallel = parallelize_module(*model, mesh, plan);
      co_await std::move(parallel);
    }
  }

  // Mean cross-entropy in nats of each row's ids but the first.
  Task<Tensor> loss(Tensor rows) {
    const std::int64_t seq = rows.size(1) - 1, count = rows.size(0) * seq;
    const Tensor targets = view(contiguous(slice(rows, 1, 1, seq + 1)), Shape{count});
    std::optional<LocalRandom> own;  // dropout: replicas draw differently
    if (replicas.defined()) own.emplace();
    Tensor scores = co_await model->forward(contiguous(slice(rows, 1, 0, seq)));
    own.reset();
    scores = view(scores, Shape{count, scores.size(2)});
    if (!scores.is_distributed()) co_return cross_entropy(scores, targets);
    co_return co_await loss_parallel_cross_entropy(scores, targets);
  }

  // Over all replicas; in flight.
  Tensor mean_over_replicas(const Tensor& loss) const {
    if (!replicas.defined()) return loss.detach();
    const DTensor term = from_local(loss.detach(), replicas, Partial(Reduce::Avg));
    return term.redistribute(Replicate()).tensor();
  }
};

// Linear warm-up, then a cosine down to a tenth. step counts from 0.
double rate_of(const FinetuneOptions& o, int step) {
  if (step < o.warmup) return o.lr * (step + 1) / o.warmup;
  const double along = static_cast<double>(step - o.warmup) / std::max(1, o.steps - o.warmup);
  return o.lr * (0.1 + 0.45 * (1 + std::cos(std::numbers::pi * along)));
}

Task<Tensor> train_step(Learner& learner, AdamW& optimizer, const TokenBatches& batches, int step) {
  optimizer.lr = rate_of(learner.options, step);
  optimizer.zero_grad();
  Task<Tensor> forward = learner.loss(batches.batch(step, learner.replicas));
  const Tensor loss = co_await std::move(forward);
  const std::vector<Tensor> mean{learner.mean_over_replicas(loss)};
  Task<void> behind = backward(loss);
  co_await std::move(behind);
  Task<Tensor> clipped = clip_grad_norm(optimizer.parameters(), 1.0);
  co_await std::move(clipped);
  Task<void> stepped = optimizer.step();
  co_await std::move(stepped);
  Task<void> arrived = arrival_of(mean);
  co_await std::move(arrived);
  co_return mean.front();
}

// A hash of all ids.
std::int64_t hash_of(const TokenFile& ids) {
  constexpr std::size_t kBlock = 1 << 16;
  std::vector<std::int64_t> block{ids.size()};  // the hash before it, and ids
  for (std::int64_t i = 0; i < ids.size(); ++i) {
    block.push_back(ids[i]);
    if (block.size() < kBlock && i + 1 < ids.size()) continue;
    const std::uint64_t hash = hash_of_chunk(std::as_bytes(std::span(block)));
    block.assign(1, static_cast<std::int64_t>(hash));
  }
  return block.front();
}

// A hash of the beginnings of all tensors of a model's folder, which tells it from another model and
// from one that was trained further.
std::int64_t hash_of_base(const std::string& folder) {
  const ModelFolder model(folder);
  std::vector<char> beginnings;
  for (std::size_t i = 0; i < model.size(); ++i) {
    const auto [file, tensor] = model[i];
    const SafetensorsHeader& header = model.files()[file];
    const std::size_t bytes = std::min<std::size_t>(tensor.end - tensor.begin, 64);
    std::ifstream data(header.path(), std::ios::binary);
    data.seekg(static_cast<std::streamoff>(header.data_begin() + tensor.begin));
    beginnings.resize(beginnings.size() + bytes);
    data.read(beginnings.data() + beginnings.size() - bytes, static_cast<std::streamsize>(bytes));
  }
  return static_cast<std::int64_t>(hash_of_chunk(std::as_bytes(std::span(beginnings))));
}

// What a step depends on, beside --lr, --warmup and --steps, which may change.
struct Settings {
  Settings(const FinetuneOptions& o, std::int64_t text_hash)
      : seed(static_cast<std::int64_t>(o.seed)),
        batch(o.batch),
        seq(o.seq),
        text(text_hash),
        base(o.every > 0 && o.lora > 0 ? hash_of_base(o.folder) : 0),
        alpha(o.alpha),
        dropout(o.dropout) {}
  std::int64_t seed, batch, seq, text, base;
  double alpha, dropout;
};

using AdapterRanks = std::map<std::string, std::int64_t>;  // by the path of the layer

// `size` of lora_A [rank, in] of each name that is one.
void put_rank(AdapterRanks& to, std::string_view name, std::int64_t size) {
  constexpr std::string_view kEnd = ".lora_A.weight";
  if (name.ends_with(kEnd)) to.emplace(name.substr(0, name.size() - kEnd.size()), size);
}
AdapterRanks adapters_of(Module& model) {
  AdapterRanks all;
  for (const NamedState& entry : state_dict(model)) put_rank(all, entry.name, entry.tensor.size(0));
  return all;
}
// In the newest checkpoint; nullopt: there is none, or resume() tells why it cannot be read.
std::optional<AdapterRanks> adapters_in(const std::string& steps) {
  try {
    std::error_code ignored;
    const bool is_there = std::filesystem::is_directory(steps, ignored);
    const std::vector<std::int64_t> all =
        is_there ? StepFolders::steps_in(steps) : std::vector<std::int64_t>();
    if (all.empty()) return std::nullopt;
    const ModelFolder model(StepFolders::path(steps, all.back()));
    AdapterRanks ranks;
    for (std::size_t i = 0; i < model.size(); ++i)
      if (const StoredTensor tensor = model[i].tensor; !tensor.shape.empty())
        put_rank(ranks, tensor.name, static_cast<std::int64_t>(tensor.shape[0]));
    return ranks;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// --targets that give adapters to these layers of the model.
std::string targets_of(const AdapterRanks& layers, Module& model) {
  std::set<std::string> patterns;
  for (const auto& [path, rank] : layers) patterns.insert(pattern_of_numbers(path));
  std::size_t matched = 0;
  for (const NamedModule& m : model.named_modules())
    if (dynamic_cast<const nn::Linear*>(m.module) != nullptr)
      matched += std::ranges::count_if(patterns, [&](const auto& p) { return matches(p, m.path); });
  if (matched != layers.size()) {
    patterns.clear();
    for (const auto& [path, rank] : layers) patterns.insert(path);
  }
  std::string text;
  for (const std::string& pattern : patterns) text += (text.empty() ? "" : ",") + pattern;
  return text;
}

// Error{BadInput}: --resume with other adapters than those of the newest checkpoint.
void require_same_adapters(const FinetuneOptions& o, Module& model) {
  const std::optional<AdapterRanks> there = adapters_in(steps_folder(o));
  if (!there) return;
  const AdapterRanks here = adapters_of(model);
  const std::string was = str_cat(steps_folder(o), " was trained with"),
                    remedy = "; give that, or another --save";
  CS_REQUIRE(here.empty() || !there->empty(), "--lora ", o.lora, ": ", was,
             "out --lora; leave it out, or give another --save");
  if (there->empty()) return;
  const std::int64_t rank = there->begin()->second;
  CS_REQUIRE(!here.empty(), "--lora is missing: ", was, " --lora ", rank, remedy);
  CS_REQUIRE(o.lora == rank, "--lora ", o.lora, ": ", was, " --lora ", rank, remedy);
  CS_REQUIRE(std::ranges::equal(here, *there), "--targets ", o.targets, ": ", was, " --targets '",
             targets_of(*there, model), "'", remedy);
}

// Checkpoints beside the new folder, with the settings that they were trained with.
class Steps {
 public:
  Steps(const FinetuneOptions& o, Learner& learner, AdamW& optimizer, Settings settings)
      : options_(o), learner_(learner), rank_(learner.world.rank()), here_(settings) {
    if (o.every == 0) return;
    const CheckpointsOptions how{.every = o.every, .keep = 2};
    kept_.emplace(*learner.model, steps_folder(o), how);
    kept_->add("optimizer", optimizer).add("seed", there_.seed).add("batch", there_.batch);
    kept_->add("seq", there_.seq).add("text", there_.text);
    kept_->add("base", there_.base).add("alpha", there_.alpha).add("dropout", there_.dropout);
  }
  Task<int> begin() {
    if (!kept_) co_return 0;
    if (!options_.resume) {
      Task<void> started = kept_->start();
      co_await std::move(started);
      co_return 0;
    }
    std::exception_ptr failed;
    if (rank_ == 0) failed = failure_of([&] { require_same_adapters(options_, *learner_.model); });
    Task<void> agreed = agree(learner_.world, failed);
    co_await std::move(agreed);
    Task<std::int64_t> resumed = kept_->resume();
    const std::int64_t step = co_await std::move(resumed);
    require_same("--seed", options_.seed, static_cast<std::uint64_t>(there_.seed));
    require_same("--batch", here_.batch, there_.batch);
    require_same("--seq", here_.seq, there_.seq);
    require_same("--alpha", here_.alpha, there_.alpha);
    require_same("--dropout", here_.dropout, there_.dropout);
    CS_REQUIRE(here_.text == there_.text, "--text ", options_.text, ": ", steps_folder(options_),
               " was trained on another text; give that, or another --save");
    CS_REQUIRE(here_.base == there_.base, options_.folder, ": ", steps_folder(options_),
               " has adapters of another model; give that, or another --save");
    if (rank_ == 0) announce(step);
    co_return static_cast<int>(step);
  }
  Task<void> after(int step, bool is_last) {
    if (!kept_) co_return;
    Task<void> saved = is_last ? kept_->save(step) : kept_->after(step);
    co_await std::move(saved);
  }
  Task<void> finish() {
    if (!kept_) co_return;
    Task<void> finished = kept_->finish();
    co_await std::move(finished);
  }
  bool due(int step) const { return options_.every > 0 && step % options_.every == 0; }

 private:
  template <class Number>
  void require_same(const char* option, Number here, Number there) const {
    CS_REQUIRE(here == there, option, ' ', here, ": ", steps_folder(options_), " was trained with ",
               option, ' ', there, "; give that, or another --save");
  }
  void announce(std::int64_t step) const {
    std::string line = str_cat("goes on from ", kept_->path(step));
    if (step == 0) line = str_cat(steps_folder(options_), " has no checkpoint: begins with step 1");
    if (step >= options_.steps)
      line += str_cat(", which has all ", options_.steps, " steps: saves ", options_.save,
                      " without a further one; a larger --steps trains on");
    std::cout << line + "\n" << std::flush;
  }
  const FinetuneOptions& options_;
  const Learner& learner_;
  int rank_;
  Settings here_, there_ = here_;
  std::optional<Checkpoints> kept_;
};

// The number of steps that are done: all, unless a stop was requested.
Task<int> train_steps(Learner& learner, const TokenBatches& batches, Settings settings,
                      StepFigures& figures) {
  const FinetuneOptions& o = learner.options;
  AdamW optimizer(learner.trained(), {.lr = o.lr, .weight_decay = o.lora > 0 ? 0 : 0.01});
  Steps steps(o, learner, optimizer, settings);
  Task<int> begun = steps.begin();
  int step = co_await std::move(begun);
  StepLog log(learner.world, {step, o.steps, o.log_every, 1.0 * o.batch * o.seq, 0}, figures);
  bool stopped = false;
  while (step < o.steps && !stopped) {
    log.before_step(step);
    Task<Tensor> making = train_step(learner, optimizer, batches, step);
    Tensor loss = co_await std::move(making);
    ++step;
    stopped = co_await learner.world.stop_requested();
    const bool finite =
        log.after_step(step - 1, std::move(loss), step == o.steps || stopped || steps.due(step));
    CS_REQUIRE(finite, "finetune: a loss until step ", step, " is not finite; a lower --lr than ",
               o.lr, " may help");
    Task<void> saved = steps.after(step, stopped || step == o.steps);
    co_await std::move(saved);
  }
  Task<void> finished = steps.finish();
  co_await std::move(finished);
  Task<void> gathered = log.gather();
  co_await std::move(gathered);
  co_return step;
}

void tell_of_stop(const FinetuneOptions& o, int step) {
  std::string line = str_cat("stopped after step ", step, " of ", o.steps);
  if (o.every > 0) line += str_cat("; --resume goes on from ", steps_folder(o));
  std::cout << line + "\n" << std::flush;
}

}  // namespace

void add_finetune(CLI::App& app, FinetuneOptions& o) {
  constexpr int kMost = 1'000'000'000;
  const auto add = [&app](const char* name, auto& value, auto lowest, auto highest,
                          const char* help) {
    cli::add_number(app, name, value, lowest, highest, help);
  };
  app.add_option("FOLDER", o.folder, "folder of a model, as of Hugging Face")->required();
  app.add_option("--text", o.text, "a text in UTF-8, or its token ids (.npy of uint16 or uint32)")
      ->required();
  cli::add_world_options(app, o);
  tools::add_word(app, "--plan", o.plan, {"one", "tp", "tp-sp", "dp", "fsdp"},
                  "tp, tp-sp: tensor parallelism, with sequences; dp, fsdp: data parallelism, "
                  "sharded; one: a single rank");
  tools::add_word(app, "--dtype", o.dtype_name, {"f32", "bf16", "f64"},
                  "dtype of the parameters; default: the folder's");
  cli::add_texts(app, "--ignore", o.ignore, "keys of config.json that are left out");
  add("--steps", o.steps, 1, kMost, "optimizer steps");
  add("--lr", o.lr, 1e-12, 1e6, "peak learning rate; cosine decay to a tenth");
  add("--warmup", o.warmup, 0, kMost, "linear warm-up steps");
  add("--batch", o.batch, 1, kMost, "sequences per step, of all ranks");
  add("--seq", o.seq, 1, kMost, "tokens per sequence");
  add("--seed", o.seed, std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max(),
      "seed of adapters, order of the text and dropout");
  add("--lora", o.lora, 1, kMost, "train adapters of this rank (LoRA), not the model");
  add("--alpha", o.alpha, 1e-6, 1e6,
      "of LoRA: the adapters' product is multiplied by alpha / rank");
  add("--dropout", o.dropout, 0.0, 0.99, "of the adapters' inputs");
  app.add_option("--targets", o.targets, "layers with adapters: patterns, with commas between")
      ->capture_default_str();
  for (const char* name : {"--alpha", "--dropout", "--targets"})
    app.get_option(name)->needs(app.get_option("--lora"));
  app.add_option("--save", o.save, "the new folder: of the model, or with --lora of the adapters")
      ->required();
  add("--every", o.every, 1, kMost,
      "checkpoints after every so many steps and the last one, in SAVE.steps");
  app.add_flag("--resume", o.resume,
               "go on from the newest of these, if there is one, on any plan and ranks; --lr, "
               "--warmup and --steps may change");
  add("--log-every", o.log_every, 1, kMost, "steps between lines if stdout is not a terminal");
}

void check_finetune(const FinetuneOptions& o) {
  (void)model_folder(o.folder);
  CS_REQUIRE(o.plan != "one" || o.ranks == 1, "--plan one is for --ranks 1, not ", o.ranks);
  CS_REQUIRE(!cuts_batch(o) || o.batch % o.ranks == 0, "--batch ", o.batch,
             " is not divisible by --ranks ", o.ranks);
  CS_REQUIRE(o.every == 0 || !o.save.empty(), "--every needs --save");
  CS_REQUIRE(!o.resume || o.every > 0, "--resume needs --every");
  if (o.save.empty()) return;
  const std::filesystem::path place = NewFolder::resolved(o.save);
  std::error_code error;
  const bool is_new =
      !std::filesystem::exists(place, error) ||
      (std::filesystem::is_directory(place, error) && std::filesystem::is_empty(place, error));
  CS_REQUIRE(is_new, "--save ", o.save, ": is there already; ",
             o.resume ? "move it away" : "give another folder");
}

Task<void> finetune(World& world, const FinetuneOptions& options, TokenFile tokens,
                    StepFigures& figures) {
  Task<void> placing = require_place(world, options);
  co_await std::move(placing);
  manual_seed(options.seed);
  Learner learner{options, world};
  Task<void> opening = learner.open();
  co_await std::move(opening);
  const Settings settings(options, options.every > 0 ? hash_of(tokens) : 0);
  const TokenBatches batches(std::move(tokens), {.batch = options.batch,
                                                 .seq = options.seq,
                                                 .seed = options.seed,
                                                 .vocab = learner.model->vocab_size()});
  Task<int> training = train_steps(learner, batches, settings, figures);
  const int step = co_await std::move(training);
  const bool stopped = step < options.steps;
  if (stopped && world.rank() == 0) tell_of_stop(options, step);
  if (options.save.empty() || (stopped && options.every > 0)) co_return;
  Task<void> saving = options.lora > 0 ? save_adapter(*learner.model, options.save)
                                       : save(*learner.model, options.save);
  co_await std::move(saving);
  if (world.rank() == 0)
    std::cout << str_cat(options.lora > 0 ? "the adapters are in " : "the model is in ",
                         options.save, "\n")
              << std::flush;
}

}  // namespace coshard::llama
