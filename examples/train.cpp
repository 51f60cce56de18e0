// Trains a Llama-shaped language model on the bytes of a text, on one rank or by tensor or data
// parallelism: options, text, model, steps with checkpoints, score and sample, figures.
//
// It ends before its last step in two cases, on all ranks after the same step. SIGINT or SIGTERM
// ends it after the current step or the next one, with checkpoint, score and sample. A loss that is
// not finite ends it when it is read, without: on the cpu after each step, on a device after every
// tenth, so that no step waits for it.
#include <fmt/format.h>

#include <coshard/coshard.h>
#include <coshard/debug.h>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <limits>
#include <numbers>

#include "dtensor/checkpoint/manifest.h"
#include "kernels/philox.h"
#include "profiling/child_process.h"
#include "profiling/json.h"
#include "profiling/output_file.h"
#include "profiling/step_log.h"
#include "runtime/launch/rank_directory.h"
#include "runtime/launch/stop_signals.h"
#include "tools/training_options.h"

namespace train {
namespace {

using namespace coshard;

// ---- Options ----

struct Options : WorldOptions {
  int layers = 4, dim = 256, heads = 8, ffn = 688, seq = 256, batch = 4;
  int steps = 1000, warmup = 100, weave = 1;
  int every = 0, keep = 2, trace_steps = 3, sample = 300, eval_blocks = 64, log_every = 50;
  double lr = 2e-3, temperature = 0.8;
  std::uint64_t seed = 1;
  bool measure_links = false, resume = false;
  std::string plan = "tp", dtype_name = "f32", overlap = "auto", link_name;
  std::string text = "data/kjv.txt", prompt = "And it came to pass";
  std::string save, trace, json;  // a folder and files to write; empty: none

  DType dtype() const { return parse_dtype(dtype_name); }
  bool data_parallel() const { return tools::cuts_batch(plan); }  // each rank has its own sequences
  double tokens() const { return 1.0 * batch * seq; }             // of a step
};

constexpr const char* kAbout =
    "Trains a Llama-shaped byte-level language model with tensor or data parallelism; ranks are "
    "threads of this process, or of those that mpirun or srun has started.";
constexpr const char* kExample =
    R"(Example: bible -f "gen1:1-rev22:21" > data/kjv.txt
         build/examples/train --text data/kjv.txt --ranks 2 --plan tp-sp --trace run.trace.json
Ctrl-C or SIGTERM stops after the current step, and still writes all files; a second one at once.
)";

void add_options(CLI::App& app, Options& o) {
  constexpr int kMost = 1'000'000'000;
  const auto add = [&app](const char* name, auto& value, auto lowest, auto highest,
                          const char* help) {
    cli::add_number(app, name, value, lowest, highest, help);
  };
  const auto add_text = [&app](const char* name, std::string& value, const char* help) {
    app.add_option(name, value, help)->capture_default_str();
  };
  cli::add_world_options(app, o);
  tools::add_shape(app, o, o.dtype_name);
  tools::add_word(
      app, "--plan", o.plan, {"tp", "tp-sp", "dp", "fsdp"},
      "tp, tp-sp: tensor parallelism, with sequences; dp, fsdp: data parallelism, sharded");
  tools::add_word(app, "--overlap", o.overlap, {"off", "auto", "always"},
                  "layers compute while collectives are in flight; auto: where it is faster");
  app.add_flag("--measure-links", o.measure_links, "measure links and GEMM times, once, for auto");
  add("--weave", o.weave, 1, kMost, "interleaved parts of a rank's sequences");
  add("--steps", o.steps, 0, kMost, "optimizer steps");
  add("--lr", o.lr, 1e-12, 1e6, "peak learning rate; cosine decay to a tenth");
  add("--warmup", o.warmup, 0, kMost, "linear warm-up steps");
  add("--seed", o.seed, std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max(),
      "seed for weights, batches and sampling");
  add_text("--text", o.text, "training text; every twentieth 4 KiB block is held out");
  add_text("--save", o.save, "keep checkpoints in this folder: at the end, and when it is stopped");
  add("--every", o.every, 1, kMost, "save after every so many steps as well");
  app.get_option("--every")->default_str("");  // 0: it does not
  add("--keep", o.keep, 1, kMost, "how many checkpoints stay, the newest ones");
  app.add_flag("--resume", o.resume,
               "go on from the newest checkpoint, if there is one, on any plan and ranks, with the "
               "same --text, --seq, --batch and --seed; --lr, --warmup and --steps may change");
  add_text("--trace", o.trace, "write a Chrome trace to this file");
  add("--trace-steps", o.trace_steps, 1, kMost,
      "steps to trace, starting with the second, or the only one");
  add_text("--json", o.json, "write the results as JSON to this file");
  add_text("--prompt", o.prompt, "prompt for the sample");
  add("--sample", o.sample, 0, kMost, "bytes to generate at the end; 0 for none");
  add("--temperature", o.temperature, 1e-6, 1e6, "sampling temperature");
  add("--eval-blocks", o.eval_blocks, 0, kMost, "maximum number of held-out blocks to score");
  add("--log-every", o.log_every, 1, kMost, "steps between lines if stdout is not a terminal");
}

// nullopt: --help was requested and has been printed.
std::optional<Options> parse_options(int argc, char** argv) {
  Options o;
  CLI::App app(kAbout, "train");
  app.footer(kExample);
  add_options(app, o);
  if (!cli::parse(app, argc, argv)) return std::nullopt;
  if (app.count("--link") > 0) o.link_name = app["--link"]->as<std::string>();
  CS_REQUIRE(app.count("--trace-steps") == 0 || !o.trace.empty(), "--trace-steps ", o.trace_steps,
             " needs --trace");
  CS_REQUIRE(o.trace.empty() || o.steps > 0, "--trace needs a step, --steps is 0");
  CS_REQUIRE(!o.measure_links || o.overlap == "auto", "--measure-links is for --overlap auto, not ",
             o.overlap);
  for (const char* name : {"--every", "--keep", "--resume"})
    CS_REQUIRE(app.count(name) == 0 || !o.save.empty(), name, " needs --save");
  CS_REQUIRE(o.device == DeviceKind::Cpu || (!o.link && o.progress_threads == 0),
             "--link and --progress-threads are for --device cpu");
  tools::check_shape(o, o.dtype(), o.device);
  const int sequences = o.data_parallel() ? o.batch / o.ranks : o.batch;
  CS_REQUIRE(o.weave <= sequences, "--weave ", o.weave, " is more than the ", sequences,
             " sequences of a rank (--batch ", o.batch, ')');
  return o;
}

// Refuses files that could not be written at the end.
void check_outputs(const Options& o) {
  const auto place = [](const std::string& name) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(name));
  };
  for (const auto& [option, name] : {std::pair{"--trace", o.trace}, {"--json", o.json}})
    if (!name.empty()) require_writable(option, name, "--text", o.text);
  CS_REQUIRE(o.trace.empty() || o.json.empty() || place(o.trace) != place(o.json),
             "--trace and --json are both ", o.trace);
}

// ---- Text ----

// Row-major [sequences, seq]; `targets` is the byte after each of `tokens`.
struct Batch {
  std::vector<double> tokens, targets;
};

std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, int i) {
  const auto words = kernels::philox_block(seed, stream, static_cast<std::uint64_t>(i));
  return std::uint64_t{words[1]} << 32 | words[0];
}

constexpr const char* kHowToMakeOne =
    "; mkdir -p data && bible -f \"gen1:1-rev22:21\" > data/kjv.txt (Debian: bible-kjv) makes one";

// The text, as bytes: what is trained on and what is held out. Read once, shared by all ranks.
class Text {
 public:
  static constexpr std::size_t kBlock = 4096, kHoldOut = 20;  // the last of twenty is held out

  Text(const std::string& path, int seq) : seq_(static_cast<std::size_t>(seq)) {
    std::ifstream file = open_input(path, "--text", kHowToMakeOne);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
    CS_REQUIRE(!bytes.empty(), "--text ", path, ": is empty");
    for (std::size_t begin = 0; begin < bytes.size(); begin += kHoldOut * kBlock) {
      const std::size_t end = std::min(bytes.size(), begin + (kHoldOut - 1) * kBlock);
      if (end - begin <= seq_) continue;
      runs_.push_back({begin, end - begin - seq_});
      starts_ += runs_.back().starts;
    }
    CS_REQUIRE(starts_ > 0, "--text ", path, ": its ", bytes.size(),
               " bytes hold no sequence of --seq ", seq, " + 1 bytes");
  }
  std::int64_t hash() const {
    return static_cast<std::int64_t>(hash_of_chunk(std::as_bytes(std::span(bytes))));
  }
  std::size_t held_out_blocks() const { return bytes.size() / kBlock / kHoldOut; }
  std::size_t held_out_begin(std::size_t i) const { return ((i + 1) * kHoldOut - 1) * kBlock; }
  // Sequences of a step, from the `first` on, none of which touches a held-out block. They depend
  // on seed and step alone (Philox), so a training that is resumed sees what it would have seen.
  Batch draw(std::uint64_t seed, int step, int first, int sequences) const {
    Batch drawn;
    for (int i = first; i < first + sequences; ++i) {
      std::size_t at = random_bits(seed, static_cast<std::uint64_t>(step), i) % starts_;
      auto run = runs_.begin();
      for (; at >= run->starts; ++run) at -= run->starts;
      const auto* from = reinterpret_cast<const unsigned char*>(bytes.data()) + run->begin + at;
      drawn.tokens.insert(drawn.tokens.end(), from, from + seq_);
      drawn.targets.insert(drawn.targets.end(), from + 1, from + seq_ + 1);
    }
    return drawn;
  }
  std::string bytes;

 private:
  struct Run {
    std::size_t begin, starts;  // so many sequences may start from `begin` on
  };
  std::size_t seq_, starts_ = 0;
  std::vector<Run> runs_;
};

// ---- Model ----

constexpr std::int64_t kClasses = 256;  // every byte value

nn::CausalLMConfig config_of(const Options& options) {
  nn::CausalLMConfig config;
  config.vocab_size = kClasses;
  config.hidden_size = options.dim;
  config.num_hidden_layers = options.layers;
  config.num_attention_heads = options.heads;
  config.intermediate_size = options.ffn;
  config.max_position_embeddings = options.seq;
  config.dtype = options.dtype();
  return config;
}

// The model of one rank: sharded by its plan, or a replica (dp; with fsdp, sharded between the
// steps). On one rank, plain tensors.
struct LanguageModel {
  const Options& options;
  World& world;
  nn::CausalLM module{config_of(options), world};
  DeviceMesh replicas = {};  // defined for dp and fsdp
  std::optional<DataParallel> gradients = {};

  Task<void> parallelize() {
    if (world.size() == 1) co_return;
    const bool dp = options.data_parallel();
    const Overlap overlap = parse_overlap(options.overlap);
    DeviceMesh mesh = init_device_mesh(world, {world.size()}, {dp ? "dp" : "tp"});
    if (options.measure_links) {
      const CalibrateOptions how{.dtypes = {options.dtype()}};
      mesh = co_await calibrate(mesh, how);
    }
    if (dp) replicas = mesh;
    if (options.plan == "fsdp") {
      for (const auto& layer : module.blocks()) fully_shard(*layer, mesh, {.overlap = overlap});
      fully_shard(module, mesh, {.overlap = overlap});
    } else if (dp) {
      gradients.emplace(module.parameters(), mesh, 0, DataParallelOptions{.overlap = overlap});
    } else {
      const ParallelPlan plan = module.plan(options.plan == "tp-sp");
      const ParallelizeOptions how{.overlap = overlap};
      co_await parallelize_module(module, mesh, plan, how);
    }
  }
  // Issued, and in flight; the same on every rank.
  Tensor mean_over_replicas(const Tensor& loss) const {
    if (!replicas.defined()) return loss.detach();
    const DTensor term = from_local(loss.detach(), replicas, Partial(Reduce::Avg));
    return term.redistribute(Replicate()).tensor();
  }
  Task<Tensor> logits(const std::vector<double>& tokens, std::int64_t rows, int parts = 1) {
    const auto length = static_cast<std::int64_t>(tokens.size()) / rows;
    Tensor ids = Tensor::from_values(world.device(), Shape{rows, length}, DType::I64, tokens);
    co_return co_await woven(module, parts).forward(ids);
  }
  // Mean cross-entropy in nats over the targets that are not negative, the same on every rank of a
  // plan. Sharded logits are not gathered.
  Task<Tensor> loss(const Batch& batch) {
    const auto count = static_cast<std::int64_t>(batch.targets.size());
    Tensor targets = Tensor::from_values(world.device(), Shape{count}, DType::I64, batch.targets);
    const std::int64_t rows = count / options.seq;
    const auto parts = static_cast<int>(std::min<std::int64_t>(options.weave, rows));
    Tensor scores = co_await logits(batch.tokens, rows, parts);
    scores = view(scores, Shape{count, kClasses});
    if (!scores.is_distributed()) co_return cross_entropy(scores, targets);
    co_return co_await loss_parallel_cross_entropy(scores, targets);
  }
  // Of the bytes that may follow `context`, of which the model sees at most the last --seq.
  Task<std::vector<double>> next_byte_logits(std::string context) {
    const auto seq = static_cast<std::size_t>(options.seq);
    if (context.size() > seq) context.erase(0, context.size() - seq);
    const auto last = static_cast<std::int64_t>(context.size()) - 1;
    // Padded to few different lengths: attention is causal, so that does not affect the last byte.
    context.resize(std::min(seq, (context.size() + 31) / 32 * 32), '\0');
    const auto* bytes = reinterpret_cast<const unsigned char*>(context.data());
    const std::vector<double> tokens(bytes, bytes + context.size());
    const Tensor scores = co_await logits(tokens, 1);
    Tensor row = slice(scores, 1, last, last + 1);
    if (row.is_distributed()) row = full_tensor(row);
    co_return row.to_vector();
  }
};

// ---- Score and sample ----

// Adds a window of `seq` bytes of which the targets [score_begin, score_end) are scored. It ends
// with the last of them, unless too little text precedes it.
void add_window(Batch& batch, const std::string& bytes, std::size_t seq, std::size_t score_begin,
                std::size_t score_end) {
  constexpr double kIgnored = -100;  // by cross_entropy
  const std::size_t begin = score_end > seq ? score_end - seq - 1 : 0;
  for (std::size_t i = begin; i < begin + seq; ++i) {
    const bool counts = i + 1 >= score_begin && i + 1 < score_end;
    batch.tokens.push_back(static_cast<unsigned char>(bytes[i]));
    batch.targets.push_back(counts ? static_cast<unsigned char>(bytes[i + 1]) : kIgnored);
  }
}

// Mean code length of the bytes of the first --eval-blocks held-out blocks; each is predicted from
// at least seq/2 bytes before it. nullopt: the text is too short to hold out a block.
Task<std::optional<double>> held_out_bits_per_byte(LanguageModel& model, const Text& text) {
  const NoGradGuard no_grad;
  const auto seq = static_cast<std::size_t>(model.options.seq);
  const std::size_t stride = std::max<std::size_t>(1, seq / 2);
  const auto most = static_cast<std::size_t>(model.options.eval_blocks);
  const std::size_t blocks = std::min(text.held_out_blocks(), most);
  double nats = 0;
  std::size_t scored = 0, windows = 0, bytes = 0;
  Batch batch;
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::size_t begin = text.held_out_begin(block), end = begin + Text::kBlock;
    for (std::size_t at = begin; at < end; at += stride) {
      const std::size_t until = std::min(end, at + stride);
      add_window(batch, text.bytes, seq, at, until);
      bytes += until - at;
      if (++windows % 8 != 0 && (block + 1 < blocks || until < end)) continue;
      const Batch group = std::exchange(batch, {});
      const Tensor loss = co_await model.loss(group);
      nats += loss.item() * static_cast<double>(bytes);
      scored += std::exchange(bytes, 0);
    }
  }
  if (scored == 0) co_return std::nullopt;
  co_return nats / static_cast<double>(scored) / std::log(2.0);
}

// `uniform` in [0, 1).
char draw_byte(const std::vector<double>& logits, double temperature, double uniform) {
  const double highest = *std::ranges::max_element(logits);
  std::vector<double> weights;
  double sum = 0;
  for (const double logit : logits)
    sum += weights.emplace_back(std::exp((logit - highest) / temperature));
  std::size_t byte = 0;
  for (double left = uniform * sum; byte + 1 < weights.size() && left >= weights[byte]; ++byte)
    left -= weights[byte];
  return static_cast<char>(byte);
}

// --sample bytes that continue --prompt; the prompt is not included.
Task<std::string> sample_continuation(LanguageModel& model) {
  constexpr std::uint64_t kStream = std::uint64_t{1} << 63;  // that no step's batch has
  const NoGradGuard no_grad;
  const Options& options = model.options;
  std::string text = options.prompt;
  for (int i = 0; i < options.sample; ++i) {
    const std::vector<double> logits = co_await model.next_byte_logits(text);
    const std::uint64_t bits = random_bits(options.seed, kStream, i) >> 11;
    text += draw_byte(logits, options.temperature, static_cast<double>(bits) * 0x1.0p-53);
  }
  co_return text.substr(options.prompt.size());
}

// ---- Steps ----

// What rank 0 finds out, of the steps since the checkpoint.
struct Outcome : StepFigures {
  std::int64_t parameters = 0;
  int threads = 0;               // of each rank
  std::vector<double> stall_ms;  // of each checkpoint: how long it has held up training
  std::string saved, sample;     // saved: the last checkpoint; empty: none
  int stopped_after = 0;         // how many steps were complete, if not all; 0: all were
  std::optional<double> bits_per_byte;
  Json compressors = Json::object();
};

// Linear warm-up, then a cosine down to a tenth. step counts from 0.
double learning_rate(const Options& options, int step) {
  if (step < options.warmup) return options.lr * (step + 1) / options.warmup;
  const double along =
      static_cast<double>(step - options.warmup) / std::max(1, options.steps - options.warmup);
  return options.lr * (0.1 + 0.45 * (1 + std::cos(std::numbers::pi * along)));
}

// One step; returns the loss before the update, which the host has not waited for.
Task<Tensor> train_step(LanguageModel& model, AdamW& optimizer, const Text& text, int step) {
  const Options& options = model.options;
  const int mine = options.batch / (model.replicas.defined() ? model.world.size() : 1);
  const int before = model.replicas.defined() ? mine * model.world.rank() : 0;
  optimizer.lr = learning_rate(options, step);
  optimizer.zero_grad();
  const Batch batch = text.draw(options.seed, step, before, mine);
  const Tensor loss = co_await model.loss(batch);
  const std::vector<Tensor> mean{model.mean_over_replicas(loss)};
  if (options.overlap == "off") co_await arrival_of(mean);  // backward would hide it
  co_await backward(loss);
  co_await clip_grad_norm(optimizer.parameters(), 1.0);
  co_await optimizer.step();
  co_await arrival_of(mean);
  co_return mean.front();
}

// The checkpoints of --save, which train_steps has opened, and what they refer to: all that a step's
// batch depends on.
struct Saving {
  const Options& options;
  std::int64_t text_here, text = text_here;  // hashes
  std::int64_t seed = static_cast<std::int64_t>(options.seed);
  std::int64_t batch = options.batch, seq = options.seq;
  std::optional<Checkpoints> kept = {};

  // The step to go on from.
  Task<int> begin(LanguageModel& model, AdamW& optimizer) {
    if (options.save.empty()) co_return 0;
    const CheckpointsOptions how{.every = options.every, .keep = options.keep};
    kept.emplace(model.module, options.save, how).add("optimizer", optimizer).add("seed", seed);
    kept->add("batch", batch).add("seq", seq).add("text", text);
    if (!options.resume) {
      co_await kept->start();
      co_return 0;
    }
    const std::int64_t step = co_await kept->resume();
    require_same("--seed", options.seed, static_cast<std::uint64_t>(seed));
    require_same("--batch", options.batch, batch);
    require_same("--seq", options.seq, seq);
    CS_REQUIRE(text == text_here, "--text ", options.text, ": ", options.save,
               " was trained on another text; give that, or begin in another folder");
    if (model.world.rank() == 0) announce(step);
    co_return static_cast<int>(step);
  }
  template <class Number>
  void require_same(const char* option, Number here, std::type_identity_t<Number> there) const {
    CS_REQUIRE(here == there, option, ' ', here, ", but ", options.save, " was trained with ",
               option, ' ', there);
  }
  void announce(std::int64_t step) const {
    std::string line = str_cat("goes on from ", kept->path(step));
    if (!std::filesystem::exists(kept->path(step)))
      line = str_cat(options.save, " has no checkpoint: begins with step 1");
    else if (step >= options.steps)
      line += str_cat(", which has all ", options.steps, " steps: give more --steps");
    std::cout << line << std::endl;
  }
  bool due(int step, bool last) const {
    return kept && (last || (options.every > 0 && step % options.every == 0));
  }
  // After each step; the ns that it took.
  Task<std::int64_t> after(int step, bool last, Outcome* told) {
    if (!kept) co_return 0;
    const std::int64_t begin = now_ns();
    Task<void> saved = last ? kept->save(step) : kept->after(step);
    co_await std::move(saved);
    const std::int64_t took = now_ns() - begin;
    if (told == nullptr || !due(step, last)) co_return took;
    told->stall_ms.push_back(static_cast<double>(took) / 1e6);
    told->saved = kept->path(step);
    co_return took;
  }
};

// False: a loss is not finite. All ranks stop after the same step.
Task<bool> train_steps(LanguageModel& model, const Text& text, Outcome& outcome) {
  const Options& options = model.options;
  World& world = model.world;
  Outcome* const told = world.rank() == 0 ? &outcome : nullptr;
  AdamW optimizer(model.module.parameters(), {.betas = {0.9, 0.95}, .weight_decay = 0.1});
  const int traced = options.trace.empty() ? 0 : options.trace_steps;
  Saving saving{options, text.hash()};
  int step = co_await saving.begin(model, optimizer);
  StepLog log(world, {step, options.steps, options.log_every, options.tokens(), traced}, outcome);
  bool last = options.steps == 0, finite = true;
  if (last) co_await saving.after(0, true, told);
  while (step < options.steps && !last && finite) {
    log.before_step(step);
    const TraceRange range(str_cat("step ", step + 1));
    Tensor loss = co_await train_step(model, optimizer, text, step);
    const bool stop = co_await world.stop_requested();
    last = ++step == options.steps || stop;
    finite = log.after_step(step - 1, std::move(loss), last || saving.due(step, last));
    if (!finite) break;
    log.skip(co_await saving.after(step, last, told));
  }
  if (saving.kept) co_await saving.kept->finish();
  if (told != nullptr && (step < options.steps || !finite)) told->stopped_after = step;
  co_await log.gather();
  co_return finite;
}

Task<void> train_rank(World& world, const Options& options, const Text& text, Outcome& outcome) {
  manual_seed(options.seed);
  LanguageModel model{options, world};
  std::int64_t parameters = 0;
  for (const Tensor& parameter : model.module.parameters()) parameters += parameter.numel();
  co_await model.parallelize();
  const bool finite = co_await train_steps(model, text, outcome);
  if (world.rank() == 0) {
    outcome.parameters = parameters;
    outcome.threads = world.options().threads;
  }
  if (!finite) co_return;  // no score for a model of NaN
  const std::optional<double> bits = co_await held_out_bits_per_byte(model, text);
  std::string sample = co_await sample_continuation(model);
  if (world.rank() != 0) co_return;
  outcome.bits_per_byte = bits;
  outcome.sample = std::move(sample);
}

// ---- Figures ----

// Why a run ended early.
std::string cause(const Outcome& outcome) {
  return outcome.bad_step() > 0 ? outcome.bad_loss() : "a stop was requested";
}

// What is wrong with the run, as one line; empty: nothing.
std::string loss_error(const Options& options, const Outcome& outcome) {
  const int bad = outcome.bad_step(), before = bad - outcome.first - 2;
  const std::size_t steps = static_cast<std::size_t>(outcome.first) + outcome.loss.size();
  const double score = outcome.bits_per_byte.value_or(0);
  if (bad == 0)
    return std::isfinite(score) ? ""
                                : str_cat("the held-out score after step ", steps, " is ", score);
  const double rate = learning_rate(options, bad - 1);
  std::string text = fmt::format("{} at step {} (learning rate {:.3g}", cause(outcome), bad, rate);
  if (before >= 0)
    text += fmt::format("; the loss before it is {:.4g}",
                        outcome.loss[static_cast<std::size_t>(before)]);
  return text + ")";
}

// Bits per byte, as a baseline of the score; null: not installed.
Json compressors_on(const std::string& text) {
  Json bits = Json::object();
  for (const std::string name : {"gzip", "bzip2", "xz"}) {
    const std::optional<std::string> packed = output_of({name, "-9", "-c"}, text);
    Json& one = bits[name + " -9"];
    if (packed) one = 8.0 * static_cast<double>(packed->size()) / static_cast<double>(text.size());
  }
  return bits;
}

Json config_json(const Options& o, int threads) {
  const std::string_view device = to_string(o.device);
  const Json link = o.link ? Json(o.link_name) : Json();
  return {{"ranks", o.ranks},      {"threads", threads},
          {"layers", o.layers},    {"dim", o.dim},
          {"heads", o.heads},      {"ffn", o.ffn},
          {"seq", o.seq},          {"batch", o.batch},
          {"steps", o.steps},      {"every", o.every},
          {"warmup", o.warmup},    {"lr", o.lr},
          {"dtype", o.dtype_name}, {"seed", o.seed},
          {"text", o.text},        {"plan", o.plan},
          {"overlap", o.overlap},  {"weave", o.weave},
          {"device", device},      {"communicator", o.communicator},
          {"link", link},          {"progress_threads", o.progress_threads}};
}

std::string report_json(const Options& options, const Outcome& outcome) {
  Json all = to_json(outcome, options.steps, options.tokens());
  all["bits_per_byte"] = outcome.bits_per_byte ? Json(*outcome.bits_per_byte) : Json();
  all["parameters"] = outcome.parameters;
  all["stopped"] = Json();
  if (outcome.stopped_after > 0)
    all["stopped"] = {{"after_step", outcome.stopped_after}, {"why", cause(outcome)}};
  all["resumed_from"] = outcome.first;
  all["saved"] = outcome.saved.empty() ? Json() : Json(outcome.saved);
  all["stall_ms"] = outcome.stall_ms;
  all["compressors"] = outcome.compressors;
  all["config"] = config_json(options, outcome.threads);
  return json_text(all, 1) + "\n";
}

// What the trace records of the run, without what may differ in its baseline, such as the link.
TraceAbout about(const Options& o, const Outcome& outcome) {
  const Json config = config_json(o, outcome.threads);
  const Processes several = processes(o);
  TraceAbout all;
  for (const char* name :
       {"plan", "overlap", "weave", "dtype", "device", "threads", "batch", "seq"})
    all[name] = config[name].is_string() ? config[name].get<std::string>() : config[name].dump();
  all["model"] = fmt::format("layers={},dim={},heads={},ffn={}", o.layers, o.dim, o.heads, o.ffn);
  all["transport"] = fmt::format("{} processes over {}", several.all, several.mpi);
  if (several.mpi.empty()) all["transport"] = "threads of one process";
  return all;
}

int traced_steps(const Options& options, const Outcome& outcome) {
  if (outcome.loss.empty()) return 0;
  const int end = outcome.first + static_cast<int>(outcome.loss.size());
  const int begin = std::min(outcome.first + 1, options.steps - 1);
  return std::max(0, std::min(end, begin + options.trace_steps) - begin);
}

void write_files(const Options& options, const Outcome& outcome) {
  const auto json = [&](std::ostream& out) { out << report_json(options, outcome); };
  const auto trace = [&](std::ostream& out) {
    write_chrome_trace(out, outcome.traces, 0, std::nullopt, about(options, outcome));
  };
  if (!options.json.empty()) write_output("--json", options.json, json);
  if (options.trace.empty()) return;
  const int steps = traced_steps(options, outcome);
  if (steps == 0) {
    std::cout << "\ntrace: " << options.trace << " is not written: no step was traced\n";
    return;
  }
  write_output("--trace", options.trace, trace);
  std::cout << "\ntrace: " << options.trace << ", of " << steps << (steps == 1 ? " step" : " steps")
            << " (open it in https://ui.perfetto.dev)\n";
}

// A sample may hold any byte; control characters and non-ASCII bytes are shown as dots.
std::string printable(std::string text) {
  for (char& c : text)
    if (c != '\n' && (c < ' ' || c > '~')) c = '.';
  return text;
}

void print_report(std::ostream& out, const Options& options, const Outcome& outcome) {
  if (outcome.stopped_after > 0)
    out << "\nstopped after step " << outcome.stopped_after << " of " << options.steps << ": "
        << cause(outcome) << '\n';
  out << '\n';
  print_steps(out, outcome, options.tokens());
  out << (outcome.bits_per_byte
              ? fmt::format("\nheld-out {:.3f} bits per byte\n", *outcome.bits_per_byte)
              : "\nheld-out: nothing was scored\n");
  if (!outcome.sample.empty())
    out << '\n' << printable(options.prompt) << " |" << printable(outcome.sample) << '\n';
  if (!outcome.saved.empty()) out << "\nsaved " << outcome.saved << "; --resume goes on from it\n";
  if (outcome.dropped() > 0)
    out << "\nThe trace lacks " << outcome.dropped() << " events: --trace-steps "
        << options.trace_steps << " is more than it can hold.\n";
}

// ---- The program ----

void announce(const Options& o, const Text& text) {
  std::cout << fmt::format(
      "{}: {} bytes, {} blocks held out; {} layers of {}, {} heads, ffn {}, {}; {}{}", o.text,
      text.bytes.size(), text.held_out_blocks(), o.layers, o.dim, o.heads, o.ffn, o.dtype_name,
      o.ranks, o.ranks == 1 ? " rank" : " ranks, plan " + o.plan);
  if (o.device != DeviceKind::Cpu)
    std::cout << ", on " << to_string(o.device) << " by " << o.communicator;
  std::cout << std::endl;
}

void require_printed() {
  std::cout.flush();
  if (!std::cout) fail(ErrorKind::DeviceFailed, "stdout: could not be written");
}

// Returns the exit code: 1 if the loss became non-finite.
int train(Options options) {
  check_outputs(options);
  const Text text(options.text, options.seq);
  const StopSignals signals("train");
  options.stop = signals.token();
  Outcome outcome;
  std::atomic<bool> tells{false};  // the process of rank 0 reports
  run_ranks(options, [&](World& world) {
    if (world.rank() == 0) tells = true, announce(options, text);
    return train_rank(world, options, text, outcome);
  });
  if (!tells) return 0;
  print_report(std::cout, options, outcome);
  const std::string error = loss_error(options, outcome);
  if (!error.empty()) std::cerr << "train: " + error + '\n' << std::flush;
  if (!options.json.empty()) outcome.compressors = compressors_on(text.bytes);
  write_files(options, outcome);
  require_printed();
  return error.empty() ? 0 : 1;
}

}  // namespace
}  // namespace train

int main(int argc, char** argv) {
  bool parsed = false;
  try {
    const auto options = train::parse_options(argc, argv);
    parsed = true;
    if (options) return train::train(*options);
    train::require_printed();  // the help
    return 0;
  } catch (const std::exception& error) {
    std::cerr << std::string("train: ") + error.what() + '\n' << std::flush;
    const auto* known = dynamic_cast<const coshard::Error*>(&error);
    const bool bad_input = known != nullptr && known->kind() == coshard::ErrorKind::BadInput;
    return bad_input || !parsed ? 2 : 1;
  }
}
